"""A score on a screen: totals and groups, healthy runs, other tools; in verbose mode each fault."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from ckaudit.lab.score.scoreboard import Board, Score
from ckaudit.reports.lab import cells
from ckaudit.reports.terminal.screen_text import columns, pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import View

MAX_NAMES = 8  # names of a list
SENTENCE_COLUMNS, NAMES_COLUMNS = 24, 16  # minimum width of sentences and lists of names while others can shrink


def render(score: Score, view: View) -> str:
    """Return the tables of every split, and what was not scored."""
    width = room(view)
    parts = [part for board in score.boards for part in _board(score, board, view, width)]
    parts.append([line for text in cells.legend(score) for line in paragraph(text, width, indent="  ")])
    parts.append(list(_not_scored(score, view, width)))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _board(score: Score, board: Board, view: View, width: int) -> Iterator[list[str]]:
    head = paint(f"{board.split} split", "bold", view)
    if board.faults:
        yield [head, *_fitting(cells.summary, board, view, width)]
    else:
        yield [head, *wrap(cells.no_fault(score, board), width)]
    yield table(cells.healthy(board), width, view, min_widths={0: SENTENCE_COLUMNS, 1: SENTENCE_COLUMNS}, heading=False)
    if board.healthy.rules:
        alarms = ", ".join(f"{rule} {count}" for rule, count in cells.alarms(board))
        yield wrap(printable(f"healthy runs by rule: {alarms}", view), width)
        yield table(cells.flagged(board), width, view, min_widths={1: NAMES_COLUMNS, 2: NAMES_COLUMNS})
    if board.peers:
        yield _fitting(cells.peers, board, view, width)
    if view.verbose and board.faults:
        rows = cells.each_fault(board)
        yield table(rows, width, view, min_widths={len(rows[0]) - 1: NAMES_COLUMNS})
    if view.verbose and board.outcomes:
        yield table(cells.each_run(board), width, view, min_widths={2: NAMES_COLUMNS, 3: NAMES_COLUMNS})


def _fitting(make: Callable[..., cells.Table], board: Board, view: View, width: int) -> list[str]:
    """Return a table, with intervals if there is room for them."""
    rows = make(board)
    fits = total(widths(rows, width, {})) <= width
    return table(rows if fits else make(board, interval=False), width, view, min_widths={})


def _not_scored(score: Score, view: View, width: int) -> Iterator[str]:
    for what, named in (
        ("without a recording, not scored", score.missing),
        ("of an older loop or recorder, scored all the same", score.older),
        ("broke the audit", score.broken),
    ):
        if named:
            names = list(named) if view.verbose else list(named)[:MAX_NAMES]
            more = f" and {len(named) - len(names)} more" if len(named) > len(names) else ""
            listed = ", ".join(f"{name} ({named[name]})" if what == "broke the audit" else name for name in names)
            yield from wrap(printable(f"{len(named)} {what}: {listed}{more}", view), width)


# Rows of cells in columns that fit a width: long cells are wrapped; if that is not enough, columns continue below.
GAP = 2
MIN_COLUMNS = 10  # the minimum width of a wrapped cell
Row = Sequence[str]


def room(view: View) -> int:
    """Return how many columns are available."""
    return view.columns(60, 130)


def table(rows: Sequence[Row], width: int, view: View, *, min_widths: Mapping[int, int], heading: bool = True) -> list[str]:
    """Return rows as lines.

    Args:
        rows: Cells; all rows have the same number.
        width: Columns of the screen.
        view: How to draw it.
        min_widths: Columns whose cells may be wrapped, and their minimum width while others can shrink.
        heading: Whether the first row is a heading, shown bold.
    """
    wide = widths(rows, width, min_widths)
    if total(wide) > width:  # the table continues below, where there is room again
        wide = [min(column, width - GAP - wide[0]) for column in widths(rows, width, {})]
    lines: list[str] = []
    for block in _blocks(wide, width):
        for number, row in enumerate(rows):
            drawn = wrapped([row[column] for column in block], [wide[column] for column in block], view)
            lines += [paint(line, "bold", view) for line in drawn] if heading and not number else drawn
        lines.append("")
    return lines[:-1]


def widths(rows: Sequence[Row], width: int, min_widths: Mapping[int, int]) -> list[int]:
    """Return the width of each column: that of its longest cell, or less if allowed, down to `MIN_COLUMNS`."""
    wide = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    while min_widths and total(wide) > width:
        spare = {column: wide[column] - enough for column, enough in min_widths.items()}
        column = max(spare, key=lambda place: spare[place])
        if spare[column] <= 0:
            column = max(min_widths, key=lambda place: wide[place])
        if wide[column] <= MIN_COLUMNS:
            break
        wide[column] -= 1
    return wide


def total(wide: Sequence[int]) -> int:
    """Return the width of a table with such columns."""
    return sum(wide) + GAP * (len(wide) - 1)


def wrapped(row: Row, wide: Sequence[int], view: View) -> list[str]:
    """Return one row as lines."""
    cells = [wrap(printable(cell, view), width) for cell, width in zip(row, wide, strict=True)]
    lines = zip_longest(*cells, fillvalue="")
    return [(" " * GAP).join(pad(part, width) for part, width in zip(line, wide, strict=True)).rstrip() for line in lines]


def _blocks(wide: Sequence[int], width: int) -> Iterator[list[int]]:
    """Yield the columns that are shown side by side; the first, which names the rows, is repeated in each block."""
    block = [0]
    for column in range(1, len(wide)):
        if len(block) > 1 and total([wide[place] for place in (*block, column)]) > width:
            yield block
            block = [0]
        block.append(column)
    yield block
