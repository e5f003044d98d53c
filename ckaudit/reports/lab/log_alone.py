"""What the log alone tells: our auditor and others on one and the same log, as a part of `docs/benchmark.md`."""

from collections.abc import Iterator

from ckaudit.lab.score.scoreboard import Board, Score
from ckaudit.reports.escape import prose as text
from ckaudit.reports.lab import cells
from ckaudit.reports.lab.markdown import missing, table

ABOUT = (
    "The same runs, of which every tool is given the same file: steps and times, training and held-out loss, learning rate, "
    "gradient norm, step time, tokens per second and the loader's wait. No checkpoint, no `run.json`, no hashes, nothing of the "
    "model; ours reads it as `ckaudit triage log.csv` reads anybody's."
)
LEGEND = (
    "any alarm: sev0 to sev2 of ours, a failure or a warning of others, whenever and whatever for",
    "right kind: it names a symptom of the fault; of others also the truth, at any step, of ours at or after the onset only",
    "first cause: the first one named is the truth; sentences are read generously",
    "healthy runs flagged: with any alarm; failed: with sev0 or sev1, or a failure",
    cells.BRACKETS,
)


def log_alone(score: Score) -> str:
    """Return a table for each split, and the faults that the log alone shows and does not show."""
    parts = [part for board in score.boards for part in _board(board)]
    parts.append("\n".join(f"- {text(line)}" for line in LEGEND))
    return "\n\n".join([*parts, *missing(score)]) + "\n"


def _board(board: Board) -> Iterator[str]:
    ill = [outcome for outcome in board.outcomes if not outcome.harmless]
    yield f"## The log alone: {board.split} split, {len(ill)} runs of faults and {len(board.controls)} healthy ones"
    yield text(ABOUT)
    yield table(cells.log_alone(board))
    if healthy := [f"{control.name}.{control.seed}" for control in board.controls if control.grave or control.sev2]:
        yield f"Healthy, but flagged by ours: {', '.join(map(text, healthy))}."
    for what, chosen in (
        ("Detected by ours, with the right cause first", [fault for fault in board.faults if fault.first_right.hits]),
        ("Detected, without it", [fault for fault in board.faults if fault.detected.hits and not fault.first_right.hits]),
    ):
        if chosen:
            yield f"{what}: {', '.join(text(faults.name) for faults in chosen)}."
