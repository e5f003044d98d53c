"""A fleet on a screen: the verdict, what unhealthy runs share, the runs to look at first, groups, and how many are left."""

from collections.abc import Iterator, Sequence

from ckaudit.contract.schema.fleet import Fleet, FleetRun
from ckaudit.reports.fleet import (
    GROUP_HEAD,
    MAX_SHARING,
    brief,
    by_severity,
    group_cells,
    group_values,
    listed_and_counted,
    open_checks,
    rest_sentence,
    severity_word,
    sharing,
)
from ckaudit.reports.terminal.screen_text import abbreviate, columns, pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.wording import first_names

ROOMY = 90
"""Columns from which on place and step are shown next to the name of a run."""
GAP = "  "
COLOURS = {"sev0": "sev0", "sev1": "sev1", "sev2": "sev2", "note": "note", "error": "sev1", "unreadable": "sev2", "well": "ok"}


def render(fleet: Fleet, view: View) -> str:
    """Return the fleet as text."""
    width = view.columns()
    shown, rest = listed_and_counted(fleet, view)
    parts = [
        _head(fleet, view, width),
        _shared(fleet, view, width),
        _runs(shown, view, width),
        _knobs(shown, view, width),
        wrap(rest_sentence(rest), width) if rest else [],
        _groups(fleet, view, width),
        _notes(fleet, view, width),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(fleet: Fleet, view: View, width: int) -> list[str]:
    lines = [paint(line, "bold", view) for line in wrap(printable(fleet.verdict, view), width)]
    counts = f"{by_severity(fleet)}; " if by_severity(fleet) else ""
    summary = f"{counts}{fleet.audited:,} audited now, {fleet.unchanged:,} unchanged since their last audit"
    return lines + [paint(line, "dim", view) for line in wrap(printable(summary, view), width)]


def _shared(fleet: Fleet, view: View, width: int) -> list[str]:
    if not fleet.common_causes:
        return []
    lines = [paint("What ill runs share", "bold", view)]
    for cause in fleet.common_causes:
        lines += paragraph(printable(sharing(cause.sentence, cause.runs), view), width, first="- ", indent="  ")
    return lines


def _runs(runs: Sequence[FleetRun], view: View, width: int) -> list[str]:
    """Return a table with a line per run if there is room, else a paragraph per run, followed by what is open."""
    if not runs:
        return []
    if width < ROOMY:
        return [line for run in runs for line in _paragraph(run, view, width)]
    lines = _table(runs, view, width)
    drawn = [paint(lines[0], "dim", view)]
    for run, line in zip(runs, lines[1:], strict=True):
        word = severity_word(run)
        drawn += [line.replace(word, paint(word, COLOURS.get(word, "dim"), view), 1), *_below(run, view, width)]
    return drawn


def _table(runs: Sequence[FleetRun], view: View, width: int) -> list[str]:
    """Return head and rows; names and places are shortened if the screen is too narrow."""
    head = ["severity", "run", "since", "where", "first cause"]
    rows = [
        [severity_word(run), run.run, _since(run), run.where or "", brief(run) if run.status == "audited" else ""] for run in runs
    ]
    cells = [head, *([printable(cell, view) for cell in row] for row in rows)]
    widths = [max(columns(row[column]) for row in cells) for column in range(len(head))]
    room = width - len(GAP) * (len(head) - 1) - widths[0] - widths[2]
    for column, max_width in ((4, 30), (3, room // 4), (1, room)):
        others = sum(widths[other] for other in (1, 3, 4) if other != column)
        widths[column] = max(min(widths[column], max_width), min(widths[column], room - others), 5)
        if column == 1:
            widths[1] = min(widths[1], room - widths[3] - widths[4])
    return [
        GAP.join(
            pad(abbreviate(cell, wide, unicode=view.unicode), wide, right=column == 2)
            for column, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _paragraph(run: FleetRun, view: View, width: int) -> Iterator[str]:
    """Yield a run on a narrow screen; nothing that distinguishes runs is cut off."""
    word = severity_word(run)
    first, *more = _indented(f"{word}{GAP}{run.run}", view, width, indent="")
    yield first.replace(word, paint(word, COLOURS.get(word, "dim"), view), 1)
    yield from more
    if run.status == "audited":
        since = f", since step {_since(run)}" if _since(run) else ""
        yield from _indented(brief(run) + since + (f", in {run.where}" if run.where else ""), view, width)
    yield from _below(run, view, width)


def _below(run: FleetRun, view: View, width: int) -> Iterator[str]:
    """Yield why a run was not audited, or which vital checks could not judge."""
    if run.status != "audited":
        yield from _indented(run.problem or "", view, width)
    elif missing := open_checks(run):
        yield from (paint(line, "dim", view) for line in _indented(f"not judged: {missing}", view, width))


def _indented(text: str, view: View, width: int, *, indent: str = GAP) -> list[str]:
    lines = wrap(printable(text, view), width - len(GAP))
    return [(GAP if number else indent) + line for number, line in enumerate(lines)]


def _knobs(runs: Sequence[FleetRun], view: View, width: int) -> list[str]:
    """Return what to change first, once for all runs with the same cause and knob."""
    sharing_knob: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run.cause and run.knob:
            sharing_knob.setdefault((run.cause, run.knob), []).append(run.run)
    lines = [paint("What to change first", "bold", view)] if sharing_knob else []
    for (cause, knob), names in sharing_knob.items():
        lines += _indented(f"{cause.replace('_', ' ')} ({first_names(names, MAX_SHARING)}): {knob}", view, width)
    return lines


def _since(run: FleetRun) -> str:
    return "" if run.first_step is None else f"{run.first_step:,}"


def _groups(fleet: Fleet, view: View, width: int) -> list[str]:
    """Return the groups as a table; if it is wider than the screen, as paragraphs."""
    if not fleet.groups:
        return []
    fields = [printable(field, view) for field in fleet.grouped_by]
    shown = fleet.groups if view.verbose else fleet.groups[: view.limit]
    rows = [[*(printable(value, view) for value in group_values(group)), *group_cells(group)] for group in shown]
    more = [f"and {len(fleet.groups) - len(shown):,} more groups; -v shows them"] if len(shown) < len(fleet.groups) else []
    head = [*fields, *GROUP_HEAD]
    widths = [max(columns(row[column]) for row in [head, *rows]) for column in range(len(head))]
    if sum(widths) + len(GAP) * (len(widths) - 1) > width:
        return [line for row in rows for line in _group_paragraph(head, row, len(fields), width)] + more
    right = range(len(fields), len(fields) + 3)
    drawn = [
        GAP.join(pad(cell, widths[column], right=column in right) for column, cell in enumerate(row)).rstrip()
        for row in [head, *rows]
    ]
    return [paint(drawn[0], "dim", view), *drawn[1:], *more]


def _group_paragraph(head: Sequence[str], row: Sequence[str], fields: int, width: int) -> list[str]:
    values = ", ".join(f"{name}={value}" for name, value in zip(head[:fields], row, strict=False))
    runs, ill, share, cause = row[fields:]
    return paragraph(f"{values}: {ill} of {runs} ill ({share})" + (f", {cause}" if cause else ""), width)


def _notes(fleet: Fleet, view: View, width: int) -> list[str]:
    return [line for note in fleet.notes for line in paragraph(printable(note, view), width, first="note: ", indent="")]
