"""The ranked causes: a table of four columns on a wide screen, paragraphs on a narrow one."""

from collections.abc import Iterator

from ckaudit.contract.report import Diagnosis, Evidence, Report
from ckaudit.reports import words
from ckaudit.reports.terminal.paragraph import fit, pad, paragraph
from ckaudit.reports.terminal.style import paint, shown
from ckaudit.reports.view import View

HEADS = ("what you see", "likely cause", "first knob", "where to inspect")
GAP = "  "


def causes(report: Report, view: View, width: int, *, narrow: int = 80) -> list[str]:
    """Return the diagnoses of `report`, likeliest first, stacked below `narrow` columns."""
    if not report.diagnoses:
        return []
    lines = [] if width < narrow else _heads(view, width)
    for rank, diagnosis in enumerate(report.diagnoses, start=1):
        if rank > 1:
            lines.append("")
        lines += _stacked(rank, diagnosis, view, width) if width < narrow else _row(rank, diagnosis, view, width)
        lines += _reasons(rank, diagnosis, view, width)
    return lines


def _widths(width: int) -> tuple[int, int, int, int]:
    """Return the widths of the four columns: what is seen gets most, because it holds the numbers."""
    room = width - len(GAP) * 3
    cause = room * 24 // 100
    see = room * 28 // 100
    knob = room * 24 // 100
    return see, cause, knob, room - see - cause - knob


def _heads(view: View, width: int) -> list[str]:
    """Return the heads of the table and the line below them."""
    heads = GAP.join(pad(head, column) for head, column in zip(HEADS, _widths(width), strict=True))
    return [paint(heads.rstrip(), "bold", view), paint(("─" if view.unicode else "-") * width, "dim", view)]


def _row(rank: int, diagnosis: Diagnosis, view: View, width: int) -> Iterator[str]:
    """Yield the lines of one cause across the four columns."""
    widths = _widths(width)
    title: list[tuple[str, str]] = [(line, diagnosis.severity) for line in fit(shown(diagnosis.title, view), widths[1])]
    title += [(line, "dim") for line in fit(words.standing(diagnosis), widths[1])]
    sees = paragraph(shown(diagnosis.symptom, view), widths[0], first=f"{rank}. ", indent="")
    knobs, places = (fit(shown(text, view), widths[column]) for text, column in ((diagnosis.knob, 2), (diagnosis.inspect, 3)))
    for line in range(max(len(sees), len(title), len(knobs), len(places))):
        cause, colour = title[line] if line < len(title) else ("", "dim")
        plain = [column[line] if line < len(column) else "" for column in (sees, knobs, places)]
        cells = [pad(plain[0], widths[0]), _painted(cause, colour, widths[1], view), pad(plain[1], widths[2]), plain[2]]
        yield GAP.join(cells).rstrip()


def _painted(text: str, colour: str, width: int, view: View) -> str:
    """Return `text` coloured, then filled to `width`: colour codes take no columns."""
    return paint(text, colour, view) + pad(text, width)[len(text) :]


def _stacked(rank: int, diagnosis: Diagnosis, view: View, width: int) -> Iterator[str]:
    """Yield one cause as a title, its confidence and three labelled paragraphs."""
    title = fit(f"{rank}. {shown(diagnosis.title, view)}", width)
    yield from (paint(line, diagnosis.severity, view) for line in title)
    yield paint(f"   {words.standing(diagnosis)}", "dim", view)
    for head, text in (("see", diagnosis.symptom), ("try", diagnosis.knob), ("inspect", diagnosis.inspect)):
        yield from paragraph(shown(text, view), width, first=f"{head:<7}  ", indent="   ")


def _reasons(rank: int, diagnosis: Diagnosis, view: View, width: int) -> Iterator[str]:
    """Yield the evidence and the way to a kernel; the runbook follows where it matters most, or everywhere if asked for."""
    for one in diagnosis.evidence:
        sign, colour = ("+", "ok") if one.weight >= 0 else ("-", "sev1")
        lines = fit(shown(_reason(one), view), width - 5)
        yield f"   {paint(sign, colour, view)} {lines[0]}"
        yield from (f"     {line}" for line in lines[1:])
    told = [f"{diagnosis.cause} explains {', '.join(diagnosis.explains)}"]
    if diagnosis.path:
        told.append(words.way(diagnosis.path, unicode=view.unicode))
    if view.verbose or (rank == 1 and diagnosis.severity in ("sev0", "sev1")):
        told.append(f"runbook: {diagnosis.runbook}")
    for text in told:
        yield from (paint(line, "dim", view) for line in paragraph(shown(text, view), width, indent="     "))


def _reason(one: Evidence) -> str:
    """Return a reason with its weight in nats and what it rests on.

    >>> _reason(Evidence(sentence="the rate doubled", weight=1.5, reference="LOSS002"))
    'the rate doubled (+1.5, LOSS002)'
    """
    reference = f", {one.reference}" if one.reference else ""
    return f"{one.sentence} ({one.weight:+.1f}{reference})"
