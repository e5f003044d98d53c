"""Publishing of the score: `docs/benchmark.md`, a part for each split, and a history of every score of the test split."""

import csv
import io
import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from ckaudit.errors import UsageError
from ckaudit.lab.score.scoreboard import Board, Score, Share
from ckaudit.lab.training_spec import split_of

DOCUMENT, HISTORY = Path("docs/benchmark.md"), Path("docs/benchmark-history.csv")
BEGIN, END = "<!-- written by ckaudit lab score --split {} -->", "<!-- end of ckaudit lab score --split {} -->"
COLUMNS = (
    "date",
    "commit",
    "bare",
    "only",
    "runs",
    "detected",
    "first_cause",
    "acceptable",
    "top3",
    "place",
    "false",
    "delay_checkpoints",
    "healthy_sev0_sev1",
    "healthy_sev2",
    "baseline",
)


def add_history(score: Score, path: Path = HISTORY) -> str:
    """Add the figures of the test split to the history, and return a message; without its folder, do nothing."""
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


def write_document(
    score: Score, draw: Callable[[Score], str], path: Path = DOCUMENT, *, command: str = "ckaudit lab score"
) -> str:
    """Write the tables of each split and their command between its marks in the document, and return a message.

    Every split has its own marks, and so has the score of other tools on it, so writing one keeps the others. Missing marks are
    added at the end of the document.

    Args:
        score: The score.
        draw: Returns the tables of a score.
        path: The document.
        command: The command of the score, without the options for the split and for the shown data.

    Raises:
        UsageError: If there is no folder for it, or it has no marks at all.
    """
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} here", hint="--write is for a clone of the repository")
    whole = path.read_text(encoding="utf-8") if path.exists() else f"# Benchmark\n\n{BEGIN.format('dev')}\n{END.format('dev')}\n"
    if BEGIN.partition("{}")[0] not in whole:
        raise UsageError(f"{path} has no marks between which is written", hint=f"put in {BEGIN} and {END}".format("dev", "dev"))
    for board in score.boards:
        missing = {name: why for name, why in score.missing.items() if split_of(int(name.rpartition(".")[2])) == board.split}
        part = replace(score, boards=[board], missing=missing)
        whole = _with_part(whole, part, [*_about(part, command), "", draw(part)], path)
    path.write_text(whole, encoding="utf-8")
    return f"wrote {path}"


def _with_part(whole: str, score: Score, lines: Sequence[str], path: Path) -> str:
    """Return the document with the part of one split replaced."""
    what = score.boards[0].split + (" --bare" if score.bare else "")
    begin, end = BEGIN.format(what), END.format(what)
    if begin not in whole:
        whole = f"{whole.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = whole.partition(begin)
    _, end_mark, after = rest.partition(end)
    body = "\n".join(lines)
    if not end_mark:
        raise UsageError(f"{path} does not say where a part ends", hint=f"put in {end}")
    return f"{before}{begin}\n\n{body}\n{end}{after}"


def commit() -> str:
    """Return the short git commit of the working folder, with a + if there are uncommitted changes; "unknown" without git."""
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


def _about(score: Score, command: str) -> Iterator[str]:
    options = "".join([" --bare" if score.bare else "", f" --only '{score.only}'" if score.only else ""])
    yield f"`{command} --split {score.boards[0].split}{options} --write`"
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
