"""Explains why a benchmark score fell, gate by gate: on a screen and in Markdown."""

from collections.abc import Iterator

from ckaudit.audit.drop.guide import ONE_AXIS
from ckaudit.audit.drop.result import Advice, Drop, Evidence, Fall, Gate
from ckaudit.reports.escape import code, escaped, visible
from ckaudit.reports.terminal.screen_text import paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.reports.words import number

COLOURS = {"passed": "ok", "failed": "sev1", "not_judged": "sev2", "advice": "note", "not_reached": "dim"}
MARKS = {"changed": "!", "steady": "=", "remark": "-", "too_few": "?", "not_recorded": "?", "not_applicable": "-"}

OUTCOMES = {"passed": "passed", "failed": "FAILED", "not_judged": "not judged", "advice": "advice", "not_reached": "not reached"}


def terminal(drop: Drop, view: View) -> str:
    """Return the whole report, one paragraph per gate."""
    width = view.columns()
    parts = [_head(drop, view, width), *(_gate(gate, drop, view, width) for gate in drop.gates)]
    if rows := guide_of(drop, verbose=view.verbose):
        parts += [[paint("Guide to architecture", "bold", view), *paragraph(ONE_AXIS, width)]]
        parts += [_advice(row, view, width) for row in rows]
    notes = [line for note in drop.notes for line in paragraph(printable(note, view), width, first="note: ", indent="")]
    return "\n\n".join("\n".join(part) for part in [*parts, notes] if part) + "\n"


def _head(drop: Drop, view: View, width: int) -> list[str]:
    title = [paint(line, "bold", view) for line in wrap(printable(f"benchmark drop {drop.subject}", view), width)]
    when = wrap(printable(fall_sentence(drop.fall), view), width) if drop.fall else []
    return [*title, *when, *(paint(line, "bold", view) for line in wrap(printable(drop.verdict, view), width))]


def _gate(gate: Gate, drop: Drop, view: View, width: int) -> list[str]:
    """Return the question, outcome, answer and evidence of a gate, what to record, and what to do."""
    word = outcome(gate)
    lines = wrap(f"{gate.row} {gate.question}", width - len(word) - 3)
    lines[-1] += "  " + paint(word, COLOURS[gate.outcome], view)
    lines[0] = lines[0].replace(gate.row, paint(gate.row, "bold", view), 1)
    lines += paragraph(printable(gate.sentence, view), width)
    for evidence in evidence_of(gate, drop, verbose=view.verbose):
        lines += _evidence(evidence, view, width)
    for record, names in missing(gate).items():
        lines += paragraph(f"record {', '.join(names)}:", width)
        lines += [f"      {printable(line, view)}" for text in record for line in text.splitlines()]
    if gate.row == drop.answer or view.verbose:
        for place, step in enumerate(gate.do, start=1):
            lines += paragraph(step, width, first=f"{place}. ")
    return lines


def _evidence(evidence: Evidence, view: View, width: int) -> list[str]:
    label = f"/{evidence.label}" if evidence.label and evidence.label not in evidence.sentence else ""
    lines = paragraph(
        printable(f"{evidence.metric}{label}: {evidence.sentence}", view), width, first=f"{MARKS[evidence.said]} ", indent="    "
    )
    return [paint(line, "sev1", view) if evidence.said == "changed" else line for line in lines]


def _advice(row: Advice, view: View, width: int) -> list[str]:
    def labelled_lines() -> Iterator[tuple[str, str]]:
        yield "when", row.when
        yield "", row.text
        yield "test", row.test
        yield from (("known", fact) for fact in row.facts)
        if row.here:
            yield "here", "; ".join(row.here)
        if row.not_applicable:
            yield "not for this run", row.not_applicable

    head = [paint(line, "bold", view) for line in wrap(f"{row.row} {row.title}", width)]
    return head + [
        line
        for label, text in labelled_lines()
        for line in paragraph(printable(text, view), width, first=f"{label}: " if label else "")
    ]


def markdown(drop: Drop, view: View) -> str:
    """Return the whole report as GitHub-flavoured Markdown."""
    blocks = [f"### ckaudit triage --benchmark-drop: {escaped(drop.verdict)}"]
    blocks += [escaped(fall_sentence(drop.fall))] if drop.fall else []
    if drop.gates:
        rows = [f"| {gate.row} | {escaped(gate.question)} | {outcome(gate)} | {escaped(gate.sentence)} |" for gate in drop.gates]
        blocks.append("\n".join(["| gate | question | outcome | answer |", "|---|---|---|---|", *rows]))
    for gate in drop.gates:
        blocks += _gate_blocks(gate, drop, view)
    if rows_of := guide_of(drop, verbose=view.verbose):
        blocks += ["#### Guide to architecture", ONE_AXIS, *(_advice_list(row) for row in rows_of)]
    blocks += [f"- {escaped(note)}" for note in drop.notes]
    blocks.append(f"<sub>{escaped(drop.subject)}: {drop.files} files read</sub>")
    return "\n\n".join(blocks) + "\n"


def _gate_blocks(gate: Gate, drop: Drop, view: View) -> Iterator[str]:
    """Yield the evidence of a gate, what to record for it, and what to do."""
    evidence = evidence_of(gate, drop, verbose=view.verbose)
    lacking = missing(gate)
    if not (evidence or lacking):
        return
    yield f"#### {gate.row} {outcome(gate)}"
    if evidence:
        rows = [f"| {row.said.replace('_', ' ')} | {code(row.metric)} | {escaped(row.sentence)} |" for row in evidence]
        yield "\n".join(["| | number | what it says |", "|---|---|---|", *rows])
    for record, names in lacking.items():
        yield f"Record {', '.join(map(code, names))}:"
        yield "\n".join(["```text", *(visible(line) for text in record for line in text.splitlines()), "```"])
    if gate.row == drop.answer:
        yield "\n".join(f"{place}. {escaped(step)}" for place, step in enumerate(gate.do, start=1))


def _advice_list(row: Advice) -> str:
    """Return a row of the guide as a list."""
    items = [f"when: {row.when}", row.text, f"test: {row.test}", *(f"known: {fact}" for fact in row.facts)]
    items += [f"here: {'; '.join(row.here)}"] if row.here else []
    items += [f"not for this run: {row.not_applicable}"] if row.not_applicable else []
    return "\n".join([f"**{row.row} {escaped(row.title)}**", "", *(f"- {escaped(item)}" for item in items)])


def fall_sentence(fall: Fall) -> str:
    """Return a sentence on what fell and when."""
    if not fall.benchmark or fall.high is None or fall.low is None:
        return f"Worse since step {fall.after}, as told; compared with what was up to step {fall.before}."
    high, low, limit = number(fall.high), number(fall.low), number(fall.limit or 0.0, digits=2)
    text = (
        f"{fall.benchmark} falls from {high} at step {fall.before} to {low}, from step {fall.after} on; noise explains {limit}."
    )
    text += f" At step {fall.is_back} it is back." if fall.is_back is not None else ""
    return text + (f" So does {', '.join(fall.others)}." if fall.others else "")


def outcome(gate: Gate) -> str:
    """Return the outcome of a gate in words."""
    return OUTCOMES[gate.outcome] + (", provisional" if gate.provisional and gate.outcome != "not_reached" else "")


def evidence_of(gate: Gate, drop: Drop, *, verbose: bool) -> list[Evidence]:
    """Return the evidence worth reading: everything compared up to the answer, after it only what changed."""
    if verbose:
        return list(gate.evidence)
    later = drop.answer is not None and gate.row > drop.answer
    wanted = {"changed"} if later else {"changed", "steady", "remark", "too_few"}
    return [evidence for evidence in gate.evidence if evidence.said in wanted]


def missing(gate: Gate) -> dict[tuple[str, ...], list[str]]:
    """Return the numbers that an open gate lacks, grouped by the lines that record them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for evidence in gate.evidence if gate.outcome == "not_judged" else ():
        if evidence.said in ("not_recorded", "too_few") and evidence.record:
            names = groups.setdefault(evidence.record, [])
            names += [evidence.metric] if evidence.metric not in names else []
    return groups


def guide_of(drop: Drop, *, verbose: bool) -> list[Advice]:
    """Return the rows of the guide to show: those for this run if the gate is reached; in verbose mode all."""
    reached = drop.answer == "SR-4"
    return [advice for advice in drop.guide if verbose or (reached and not advice.not_applicable)]
