"""The resume checkpoints on a screen: a line each, the newest last, names cut to what is left of the width."""

from ckaudit.contract.report import Report
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import columns, fit, pad
from ckaudit.reports.view import View
from ckaudit.reports.window import HEAD, NUMBERS, kept, rows

MOST = 20  # a rolling window is smaller
LEAST_NAME = 16  # columns below which names get a line of their own


def window(report: Report, view: View, width: int) -> list[str]:
    """Return the table of resume checkpoints; nothing where the command looks for none."""
    checkpoints = kept(report)
    listed = checkpoints if view.verbose else checkpoints[-MOST:]
    if not listed:
        return []
    cells = [HEAD, *(tuple(shown(cell, view) for cell in row) for row in rows(listed))]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(HEAD) - 1)]
    head, *lines = (_line(row, widths, width) for row in cells)
    hidden = len(checkpoints) - len(listed)
    more = [paint(f"  {hidden:,} older ones are not shown (-v shows all)", "dim", view)] if hidden else []
    colours = ["bold" if each.ok is not False else "sev0" for each in listed]
    drawn = [
        paint(line, colour, view) if colour == "sev0" else line
        for block, colour in zip(lines, colours, strict=True)
        for line in block
    ]
    return [paint("Resume checkpoints", "bold", view), *(paint(line, "dim", view) for line in head), *drawn, *more]


def _line(row: tuple[str, ...], widths: list[int], width: int) -> list[str]:
    """Return one row: numbers to the right, words to the left, the name at the end or, where it does not fit, below."""
    cells = [
        " " * (widths[index] - columns(cell)) + cell if index in NUMBERS else pad(cell, widths[index])
        for index, cell in enumerate(row[:-1])
    ]
    line = "  " + "  ".join(cells)
    room = width - columns(line) - 2
    if columns(row[-1]) <= room:
        return [f"{line}  {row[-1]}"]
    if columns(line) > width:
        line = "  " + "  ".join(cell.strip() for cell in cells)
        return [*(f"  {part}" for part in fit(line, width - 2)), *(f"    {part}" for part in fit(row[-1], width - 4))]
    return [line.rstrip(), *(f"    {part}" for part in fit(row[-1], width - 4))]
