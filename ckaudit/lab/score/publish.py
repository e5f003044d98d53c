"""The score on paper: `docs/benchmark.md` in two parts, and a line in the history each time the test split is looked at."""

import csv
import io
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ckaudit.errors import UsageError
from ckaudit.lab.score.board import Board, Score
from ckaudit.lab.score.wilson import Share

DOCUMENT, HISTORY = Path("docs/benchmark.md"), Path("docs/benchmark-history.csv")
MARKS = ("<!-- written by ckaudit lab score -->", "<!-- end of what is written -->")
BARE_MARKS = ("<!-- written by ckaudit lab score --bare -->", "<!-- end of what is written of the log alone -->")
COLUMNS = (
    "date", "commit", "bare", "only", "runs", "detected", "first_cause", "acceptable", "top3", "place", "false",
    "delay_checkpoints", "healthy_sev0_sev1", "healthy_sev2", "baseline",
)  # fmt: skip
NEW = "# Benchmark\n\n{}\n{}\n".format(*MARKS)


def add_history(score: Score, path: Path = HISTORY) -> str:
    """Add the figures of the test split to the history and say so; where there is no such folder, do nothing."""
    if not path.parent.is_dir():
        return ""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    if not path.exists():
        lines.writerow(COLUMNS)
    for board in score.boards:
        if board.split == "test":
            lines.writerow(_figures(score, board))
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text.getvalue())
    return f"added a line to {path}"


def write_document(score: Score, tables: str, path: Path = DOCUMENT) -> str:
    """Write the tables between the marks of the document, with what made them, and say so.

    What other tools see has marks of its own, added at the end of a document that lacks them, so that neither part is lost when
    the other is written.

    Raises:
        UsageError: If there is no folder for it, or the marks are not in it.
    """
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} here", hint="--write is for a clone of the repository")
    whole = path.read_text(encoding="utf-8") if path.exists() else NEW
    marks = BARE_MARKS if score.bare else MARKS
    if score.bare and marks[0] not in whole:
        whole = "{}\n\n{}\n{}\n".format(whole.rstrip("\n"), *marks)
    before, begin, rest = whole.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not (begin and end):
        raise UsageError(f"{path} does not have the marks between which is written", hint="put in {} and {}".format(*marks))
    about = "\n".join(_about(score))
    path.write_text(f"{before}{begin}\n\n{about}\n\n{tables}\n{end}{after}", encoding="utf-8")
    return f"wrote {path}"


def commit() -> str:
    """Return the short commit of the working folder, with a + where something in it is not committed; "unknown": no git."""
    from subprocess import SubprocessError, run

    def git(*arguments: str) -> str:
        return run(["git", *arguments], capture_output=True, text=True, check=True, timeout=30).stdout.strip()  # noqa: S603, S607

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, SubprocessError):
        return "unknown"


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(tz=UTC).strftime("%Y-%m-%d")


def _about(score: Score) -> Iterator[str]:
    splits = "both" if len(score.boards) > 1 else score.boards[0].split
    options = "".join([" --bare" if score.bare else "", f" --only '{score.only}'" if score.only else ""])
    peers = (
        " --peers PYTHON"
        if any(peer.reads == "log" and peer.name != "ckaudit" for board in score.boards for peer in board.peers)
        else ""
    )
    yield f"`ckaudit lab score --split {splits}{options}{peers} --write`"
    yield ""
    yield f"{today()}, commit {commit()}, {score.tool}, Python {platform.python_version()}."


def _figures(score: Score, board: Board) -> list[str]:
    faults, healthy = board.all, board.healthy
    shares = (faults.detected, faults.first_right, faults.acceptable, faults.top3, faults.place_right, faults.false)
    return [
        today(),
        commit(),
        "yes" if score.bare else "no",
        score.only,
        str(len(board.outcomes) + len(board.controls)),
        *map(_part, shares),
        "" if faults.delay_checkpoints is None else f"{faults.delay_checkpoints:g}",
        _part(healthy.grave),
        _part(healthy.sev2),
        _part(board.baseline.first_right) if board.baseline else "",
    ]


def _part(share: Share) -> str:
    return "" if share.share is None else f"{share.share:.4f}"
