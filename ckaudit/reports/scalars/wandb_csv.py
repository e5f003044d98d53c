"""A CSV like a run's history out of Weights & Biases: `_step`, `_runtime`, `_timestamp`, then a column per name.

Its steps only rise, so that what a resume replaced has no place in it. Names keep their own spelling.
"""

from typing import Any, BinaryIO

from ckaudit.reports.scalars.arrow import batches, schema
from ckaudit.reports.scalars.csv import write_rows
from ckaudit.run.read import Progress
from ckaudit.run.scalars import Logged


def write(logged: Logged, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the history that counts, some lines at a time."""
    counted = logged.counted()
    described = schema(counted)
    timed = "time" in described.names
    names = [name for name in described.names if name not in ("step", "session", "time")]
    started = [_first(counted)] if timed else []
    pieces = (_history(piece, names, started) for piece in batches(counted, described, progress))
    write_rows(["_step", *(["_runtime", "_timestamp"] if timed else []), *names], pieces, sink)


def _first(counted: Logged) -> float:
    """Return the first time that was logged."""
    return next(float(part.min()) for log in counted.sessions.values() for _, part in log.numbers["time"].joined())


def _history(piece: Any, names: list[str], started: list[float]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, shown = [piece["step"]], ["_step"]
    for start in started:
        columns += [pc.subtract(piece["time"], start), piece["time"]]
        shown += ["_runtime", "_timestamp"]
    numbered = [f"{index}" for index in range(len(names))]  # names may stand twice in a batch, and are written by hand
    return pa.record_batch([*columns, *(piece[name] for name in names)], names=[*shown, *numbered])
