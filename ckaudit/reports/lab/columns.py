"""Rows of cells in columns that fit a width: long cells are wrapped; where that is not enough, columns go on below."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from ckaudit.reports.terminal.text import columns, fit, pad, paint, shown
from ckaudit.reports.view import View

GAP = 2
UNSEEN, NARROWEST, WIDEST = 100, 60, 130  # columns where no screen says how many, and between which a table is drawn
FLOOR = 10  # columns that no cell is wrapped below
Row = Sequence[str]


def room(view: View) -> int:
    """Return how many columns there are to draw on."""
    return min(WIDEST, max(NARROWEST, view.width or UNSEEN))


def table(rows: Sequence[Row], width: int, view: View, *, min_widths: Mapping[int, int], heading: bool = True) -> list[str]:
    """Return rows as lines.

    Args:
        rows: Cells; all rows have the same number.
        width: Columns of the screen.
        view: How it is drawn.
        min_widths: Columns whose cells may be wrapped, and how wide they stay while others can give way.
        heading: Whether the first row is one, shown bold.
    """
    wide = widths(rows, width, min_widths)
    if total(wide) > width:  # it goes on below, where there is room again
        wide = [min(each, width - GAP - wide[0]) for each in widths(rows, width, {})]
    lines: list[str] = []
    for block in _blocks(wide, width):
        for number, row in enumerate(rows):
            drawn = wrapped([row[column] for column in block], [wide[column] for column in block], view)
            lines += [paint(line, "bold", view) for line in drawn] if heading and not number else drawn
        lines.append("")
    return lines[:-1]


def widths(rows: Sequence[Row], width: int, min_widths: Mapping[int, int]) -> list[int]:
    """Return how wide each column is: as its longest cell, or less where it may be, down to `FLOOR`."""
    wide = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    while min_widths and total(wide) > width:
        spare = {column: wide[column] - enough for column, enough in min_widths.items()}
        column = max(spare, key=lambda each: spare[each])
        if spare[column] <= 0:
            column = max(min_widths, key=lambda each: wide[each])
        if wide[column] <= FLOOR:
            break
        wide[column] -= 1
    return wide


def total(wide: Sequence[int]) -> int:
    """Return how wide a table is that has such columns."""
    return sum(wide) + GAP * (len(wide) - 1)


def wrapped(row: Row, wide: Sequence[int], view: View) -> list[str]:
    """Return one row as lines."""
    cells = [fit(shown(cell, view), width) for cell, width in zip(row, wide, strict=True)]
    lines = zip_longest(*cells, fillvalue="")
    return [(" " * GAP).join(pad(part, width) for part, width in zip(line, wide, strict=True)).rstrip() for line in lines]


def _blocks(wide: Sequence[int], width: int) -> Iterator[list[int]]:
    """Yield the columns that are shown side by side; the first one, which names the rows, stands before each block."""
    block = [0]
    for column in range(1, len(wide)):
        if len(block) > 1 and total([wide[each] for each in (*block, column)]) > width:
            yield block
            block = [0]
        block.append(column)
    yield block
