"""The resume checkpoints of a report as the cells of a table, the same on a screen and in Markdown."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from ckaudit.contract.schema.report import Report, ResumeCheckpoint

HEAD = ("step", "size", "written (UTC)", "took", "weights", "optimizer", "good", "lacks", "where")
NUMBERS = frozenset({0, 1, 3, 4, 5})  # columns that are aligned to the right
LACKS = HEAD.index("lacks")
NOTHING = "-"


def kept(report: Report) -> Sequence[ResumeCheckpoint]:
    """Return the checkpoints of a report; none where the command looks for none."""
    return () if report.resume_checkpoints is UNSET else report.resume_checkpoints


def rows(checkpoints: Sequence[ResumeCheckpoint]) -> list[tuple[str, ...]]:
    """Return a row of cells for each checkpoint, in the order of `HEAD`."""
    return [_row(checkpoint) for checkpoint in checkpoints]


def _row(checkpoint: ResumeCheckpoint) -> tuple[str, ...]:
    return (
        NOTHING if checkpoint.step is None else f"{checkpoint.step:,}",
        amount(checkpoint.size),
        _time(checkpoint.written),
        NOTHING if checkpoint.seconds is None else f"{checkpoint.seconds:,.1f} s",
        amount(checkpoint.weight_bytes) if checkpoint.weight_bytes else NOTHING,
        amount(checkpoint.optimizer_bytes) if checkpoint.optimizer_bytes else NOTHING,
        {True: "yes", False: "NO", None: "not judged"}[checkpoint.ok],
        lacks(checkpoint),
        checkpoint.name,
    )


def lacks(checkpoint: ResumeCheckpoint) -> str:
    """Return what a checkpoint lacks, in words; a question mark where nothing of it could be read."""
    return (", ".join(name.replace("_", " ") for name in checkpoint.absent) or NOTHING) if checkpoint.form else "?"


def _time(seconds: float | None) -> str:
    try:
        return NOTHING if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):
        return NOTHING


def amount(size: float) -> str:
    """Return a number of bytes in decimal units.

    >>> amount(999), amount(87_270), amount(2_400_000_000)
    ('999 B', '87.3 kB', '2.4 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
