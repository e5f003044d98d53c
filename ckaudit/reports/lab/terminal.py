"""A score on a screen: all and by group, healthy runs, other tools; each fault where everything is asked for."""

from collections.abc import Callable, Iterator

from ckaudit.lab.score.scoreboard import Board, Score
from ckaudit.reports.lab import cells
from ckaudit.reports.lab.columns import room, table, total, widths
from ckaudit.reports.terminal.text import fit, paint, paragraph, shown
from ckaudit.reports.view import View

FEW = 8  # names of a list
WORDS, RULES = 24, 16  # columns that sentences and lists of names keep while others can give way


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
        yield [head, *fit(cells.no_fault(score, board), width)]
    yield table(cells.healthy(board), width, view, min_widths={0: WORDS, 1: WORDS}, heading=False)
    if board.healthy.rules:
        told = ", ".join(f"{rule} {count}" for rule, count in cells.alarms(board))
        yield fit(shown(f"healthy runs by rule: {told}", view), width)
        yield table(cells.flagged(board), width, view, min_widths={1: RULES, 2: RULES})
    if board.peers:
        yield _fitting(cells.peers, board, view, width)
    if view.verbose and board.faults:
        rows = cells.each_fault(board)
        yield table(rows, width, view, min_widths={len(rows[0]) - 1: RULES})
    if view.verbose and board.outcomes:
        yield table(cells.each_run(board), width, view, min_widths={2: RULES, 3: RULES})


def _fitting(make: Callable[..., cells.Table], board: Board, view: View, width: int) -> list[str]:
    """Return a table with intervals where there is room for them, else without."""
    rows = make(board)
    fits = total(widths(rows, width, {})) <= width
    return table(rows if fits else make(board, interval=False), width, view, min_widths={})


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
            yield from fit(shown(f"{len(found)} {what}: {told}{more}", view), width)
