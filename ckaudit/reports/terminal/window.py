"""The resume checkpoints on a screen: a line each, the newest last, and below it what it lacks."""

from collections.abc import Iterator, Sequence

from ckaudit.contract.report import Report, ResumeCheckpoint
from ckaudit.reports.terminal.paragraph import columns, fit, pad, paragraph
from ckaudit.reports.terminal.style import paint, shown
from ckaudit.reports.view import View
from ckaudit.reports.window import HEAD, LACKS, NUMBERS, kept, lacks, rows

MOST = 20  # a rolling window is smaller


def window(report: Report, view: View, width: int) -> list[str]:
    """Return the table of resume checkpoints; nothing where the command looks for none."""
    checkpoints = kept(report)
    listed = checkpoints if view.verbose else checkpoints[-MOST:]
    if not listed:
        return []
    lines = [paint("Resume checkpoints", "bold", view), *_table(listed, view, width)]
    if together := _lacked_by_all(listed):
        lines += [paint(line, "dim", view) for line in paragraph(f"all lack {together}", width)]
    if hidden := len(checkpoints) - len(listed):
        lines.append(paint(f"  {hidden:,} older ones are not shown (-v shows all)", "dim", view))
    return lines


def _table(listed: Sequence[ResumeCheckpoint], view: View, width: int) -> Iterator[str]:
    cells = [tuple(shown(cell, view) for index, cell in enumerate(row) if index != LACKS) for row in (HEAD, *rows(listed))]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(cells[0]) - 1)]
    yield from (paint(line, "dim", view) for line in _line(cells[0], widths, width))
    together = _lacked_by_all(listed)
    for each, row in zip(listed, cells[1:], strict=True):
        lines = _line(row, widths, width)
        yield from (paint(line, "sev0", view) for line in lines) if each.ok is False else lines
        if each.absent and each.form and not together:
            yield from (paint(line, "dim", view) for line in paragraph(f"lacks {lacks(each)}", width, indent="      "))


def _lacked_by_all(listed: Sequence[ResumeCheckpoint]) -> str:
    """Return what every one of several checkpoints lacks, where they all lack the same."""
    same = len(listed) > 1 and all(each.form and each.absent == listed[0].absent for each in listed)
    return lacks(listed[0]) if same and listed[0].absent else ""


def _line(row: tuple[str, ...], widths: list[int], width: int) -> list[str]:
    """Return one row: numbers to the right, words to the left, the name at the end or, where it does not fit, below."""
    cells = [
        " " * (widths[index] - columns(cell)) + cell if index in NUMBERS else pad(cell, widths[index])
        for index, cell in enumerate(row[:-1])
    ]
    line = "  " + "  ".join(cells)
    if columns(line) > width:
        line = "  ".join(cell.strip() for cell in cells)
        return [*(f"  {part}" for part in fit(line, width - 2)), *(f"      {part}" for part in fit(row[-1], width - 6))]
    if columns(line) + 2 + columns(row[-1]) <= width:
        return [f"{line}  {row[-1]}"]
    return [line.rstrip(), *(f"      {part}" for part in fit(row[-1], width - 6))]
