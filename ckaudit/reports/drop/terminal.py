"""Why a benchmark fell, on a screen: what fell, the verdict, then each gate with what it rests on."""

from collections.abc import Iterator

from ckaudit.audit.drop.guide import ONE_AXIS
from ckaudit.audit.drop.result import Advice, Drop, Evidence, Gate
from ckaudit.reports.drop.sentences import fell, guide_of, missing, outcome, told
from ckaudit.reports.terminal.text import fit, paint, paragraph, shown
from ckaudit.reports.view import View

UNSEEN = 100  # columns where no screen says how many
NARROWEST, WIDEST = 40, 110
COLOURS = {"passed": "ok", "failed": "sev1", "not_judged": "sev2", "advice": "note", "not_reached": "dim"}
MARKS = {"changed": "!", "steady": "=", "remark": "-", "too_few": "?", "not_recorded": "?", "not_applicable": "-"}


def render(drop: Drop, view: View) -> str:
    """Return the whole, each gate a paragraph."""
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    parts = [_head(drop, view, width), *(_gate(gate, drop, view, width) for gate in drop.gates)]
    if rows := guide_of(drop, verbose=view.verbose):
        parts += [[paint("Guide to architecture", "bold", view), *paragraph(ONE_AXIS, width)]]
        parts += [_advice(row, view, width) for row in rows]
    notes = [line for note in drop.notes for line in paragraph(shown(note, view), width, first="note: ", indent="")]
    return "\n\n".join("\n".join(part) for part in [*parts, notes] if part) + "\n"


def _head(drop: Drop, view: View, width: int) -> list[str]:
    title = [paint(line, "bold", view) for line in fit(shown(f"benchmark drop {drop.subject}", view), width)]
    when = fit(shown(fell(drop.fall), view), width) if drop.fall else []
    return [*title, *when, *(paint(line, "bold", view) for line in fit(shown(drop.verdict, view), width))]


def _gate(gate: Gate, drop: Drop, view: View, width: int) -> list[str]:
    """Return question, outcome, answer, evidence, what to record, and what to do."""
    word = outcome(gate)
    lines = fit(f"{gate.row} {gate.question}", width - len(word) - 3)
    lines[-1] += "  " + paint(word, COLOURS[gate.outcome], view)
    lines[0] = lines[0].replace(gate.row, paint(gate.row, "bold", view), 1)
    lines += paragraph(shown(gate.sentence, view), width)
    for evidence in told(gate, drop, verbose=view.verbose):
        lines += _evidence(evidence, view, width)
    for record, names in missing(gate).items():
        lines += paragraph(f"record {', '.join(names)}:", width)
        lines += [f"      {shown(line, view)}" for text in record for line in text.splitlines()]
    if gate.row == drop.answer or view.verbose:
        for place, step in enumerate(gate.do, start=1):
            lines += paragraph(step, width, first=f"{place}. ")
    return lines


def _evidence(evidence: Evidence, view: View, width: int) -> list[str]:
    label = f"/{evidence.label}" if evidence.label and evidence.label not in evidence.sentence else ""
    lines = paragraph(
        shown(f"{evidence.metric}{label}: {evidence.sentence}", view), width, first=f"{MARKS[evidence.said]} ", indent="    "
    )
    return [paint(line, "sev1", view) if evidence.said == "changed" else line for line in lines]


def _advice(row: Advice, view: View, width: int) -> list[str]:
    def told_of() -> Iterator[tuple[str, str]]:
        yield "when", row.when
        yield "", row.text
        yield "test", row.test
        yield from (("known", fact) for fact in row.facts)
        if row.here:
            yield "here", "; ".join(row.here)
        if row.not_applicable:
            yield "not for this run", row.not_applicable

    head = [paint(line, "bold", view) for line in fit(f"{row.row} {row.title}", width)]
    return head + [
        line for label, text in told_of() for line in paragraph(shown(text, view), width, first=f"{label}: " if label else "")
    ]
