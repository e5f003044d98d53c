"""A score on a screen: all and by group, healthy runs, other tools; each fault where everything is asked for."""

from collections.abc import Callable, Iterator

from ckaudit.lab.score.board import Board, Score
from ckaudit.reports.lab import cells
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import paragraph
from ckaudit.reports.view import View

WIDEST = 130
FEW = 8  # names of a list


def render(score: Score, view: View) -> str:
    """Return the tables of every split, and what was not scored."""
    width = min(WIDEST, view.width or WIDEST)
    parts = [part for board in score.boards for part in _board(board, view, width)]
    parts.append([line for text in cells.LEGEND for line in paragraph(text, width, indent="  ")])
    parts.append(list(_not_scored(score, view, width)))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _board(board: Board, view: View, width: int) -> Iterator[list[str]]:
    yield [paint(f"{board.split} split", "bold", view), *_fitting(cells.summary, board, view, width)]
    yield table(cells.healthy(board), view)
    if board.healthy.rules:
        told = ", ".join(f"{rule} {count}" for rule, count in cells.alarms(board))
        yield paragraph(shown(told, view), width, first="healthy runs by rule: ")
    if board.peers:
        yield _fitting(cells.peers, board, view, width)
    if view.verbose:
        yield table(cells.each_fault(board), view)


def _fitting(make: Callable[..., cells.Table], board: Board, view: View, width: int) -> list[str]:
    """Return a table with intervals where there is room for them, else without."""
    rows = make(board)
    total = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2
    return table(rows if total <= width else make(board, interval=False), view)


def table(rows: cells.Table, view: View) -> list[str]:
    """Return rows in columns, the first one bold where it is a heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [paint(lines[0], "bold", view), *lines[1:]] if rows[0][0] == "" else lines


def _not_scored(score: Score, view: View, width: int) -> Iterator[str]:
    for what, found in (
        ("without a recording, not scored", score.missing),
        ("of an older loop or recorder, scored all the same", score.older),
        ("broke the audit", score.broken),
    ):
        if found:
            names = list(found) if view.verbose else list(found)[:FEW]
            more = f" and {len(found) - len(names)} more" if len(found) > len(names) else ""
            told = ", ".join(f"{name} ({found[name]})" if what == "broke the audit" else name for name in names)
            yield from paragraph(shown(f"{told}{more}", view), width, first=f"{len(found)} {what}: ")
