"""A score as Markdown: the content of `docs/benchmark.md`."""

from collections.abc import Iterator

from ckaudit.lab.score.scoreboard import Board, Score
from ckaudit.reports.escape import prose as text
from ckaudit.reports.lab import cells
from ckaudit.reports.view import View
from ckaudit.wording import first_names

MAX_NAMES = 12  # names of a list


def render(score: Score, view: View) -> str:  # noqa: ARG001  paper has room for everything
    """Return every table of every split."""
    parts = [part for board in score.boards for part in _board(score, board)]
    parts.append("\n".join(f"- {text(line)}" for line in cells.legend(score)))
    return "\n\n".join([*parts, *missing(score)]) + "\n"


def missing(score: Score) -> Iterator[str]:
    """Yield what was not scored, what was recorded by another program, and what broke."""
    for what, named in (
        ("Not recorded, so not scored", score.missing),
        ("Recorded by an older loop or recorder, scored all the same", score.older),
        ("Broke the audit", score.broken),
    ):
        if named:
            yield f"{what}: {first_names([*map(text, named)], MAX_NAMES)}."


def _board(score: Score, board: Board) -> Iterator[str]:
    runs = len(board.outcomes) + len(board.controls)
    yield f"## {board.split.capitalize()} split, {runs} runs"
    yield table(cells.summary(board)) if board.faults else f"{cells.no_fault(score, board).capitalize()}."
    yield table([("", "runs"), *cells.healthy(board)])
    if board.healthy.rules:
        yield "### Rules that find something in healthy runs"
        yield table([("rule", "runs"), *cells.alarms(board)])
        yield table(cells.flagged(board))
    if board.peers:
        yield "### Tools on the same runs"
        yield table(cells.peers(board))
        yield (
            "Any alarm counts here, whenever and whatever for: not all of them say more. Messages in words are read generously. "
            "Those in the loop were attached with their defaults to the same training, done once more; a second line of ours is "
            "of the runs at which they were."
        )
    if board.faults:
        yield "### Fault by fault"
        yield table(cells.each_fault(board))


def table(rows: cells.Table) -> str:
    """Return a Markdown table; the first row is its heading."""
    lines = [f"| {' | '.join(text(cell) for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


# What the log alone shows: our auditor and others on the same log, as a part of `docs/benchmark.md`.
ABOUT_LOGS = (
    "The same runs, of which every tool is given the same file: steps and times, training and held-out loss, learning rate, "
    "gradient norm, step time, tokens per second and the loader's wait. No checkpoint, no `run.json`, no hashes, nothing of the "
    "model; ours reads it as `ckaudit triage log.csv` reads anybody's."
)
LOG_LEGEND = (
    "any alarm: sev0 to sev2 of ours, a failure or a warning of others, whenever and whatever for",
    "right kind: it names a symptom of the fault; of others also the truth, at any step, of ours at or after the onset only",
    "first cause: the first one named is the truth; sentences are read generously",
    "healthy runs flagged: with any alarm; failed: with sev0 or sev1, or a failure",
    cells.BRACKETS,
)


def log_alone(score: Score) -> str:
    """Return a table for each split, and the faults that the log alone does and does not show."""
    parts = [part for board in score.boards for part in _board_of_logs(board)]
    parts.append("\n".join(f"- {text(line)}" for line in LOG_LEGEND))
    return "\n\n".join([*parts, *missing(score)]) + "\n"


def _board_of_logs(board: Board) -> Iterator[str]:
    ill = [outcome for outcome in board.outcomes if not outcome.harmless]
    yield f"## The log alone: {board.split} split, {len(ill)} runs of faults and {len(board.controls)} healthy ones"
    yield text(ABOUT_LOGS)
    yield table(cells.log_alone(board))
    if healthy := [f"{control.name}.{control.seed}" for control in board.controls if control.grave or control.sev2]:
        yield f"Healthy, but flagged by ours: {', '.join(map(text, healthy))}."
    for what, chosen in (
        ("Detected by ours, with the right cause first", [fault for fault in board.faults if fault.first_right.hits]),
        ("Detected, without it", [fault for fault in board.faults if fault.detected.hits and not fault.first_right.hits]),
    ):
        if chosen:
            yield f"{what}: {', '.join(text(faults.name) for faults in chosen)}."
