"""The scalars of a run as one file for other programs: Arrow, Parquet, CSV, and a CSV in the style of a W&B run history."""

import csv
import io
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from ckaudit import __version__
from ckaudit.contract.io.codec import encode
from ckaudit.contract.schema.scalars import EXPORT_MARK, EXPORT_SESSION, EXPORTED_WORDS, inert
from ckaudit.run.read import Progress
from ckaudit.run.scalars import LoggedScalars

FILES = ("parquet", "arrow", "csv", "wandb-csv")
FOLDERS = ("tensorboard",)
FORMATS = (*FILES, *FOLDERS)


def write(logged: LoggedScalars, format: str, sink: BinaryIO, progress: Progress | None = None) -> None:  # noqa: A002  its name
    """Write the scalars of a run in one of `FILES`, piece by piece; `progress` is called with lines done and the total."""
    writers = {"parquet": _write_parquet, "arrow": _write_arrow, "csv": _write_csv, "wandb-csv": _write_wandb_csv}
    writers[format](logged, sink, progress)


def write_folder(logged: LoggedScalars, format: str, folder: Path, progress: Progress | None = None) -> None:  # noqa: A002  its name
    """Write the scalars of a run in one of `FOLDERS`, into an existing folder."""
    import_module(f"ckaudit.reports.{format}").write(logged, folder, progress)


def _write_arrow(logged: LoggedScalars, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write one column of numbers per name; null means not recorded, NaN was recorded as NaN.

    Words are in separate columns, `name:text`, so that a name may hold both.
    """
    import pyarrow as pa

    described = schema(logged)
    with pa.ipc.new_file(sink, described) as writer:
        for batch in batches(logged, described, progress):
            writer.write_batch(batch)


def schema(logged: LoggedScalars) -> Any:
    """Return the types of the columns; facts about the run are in the metadata."""
    import pyarrow as pa

    numbers = [(name, pa.float64()) for name in logged.numbers]
    words = [(f"{name}{EXPORTED_WORDS}", pa.string()) for name in logged.words]
    metadata = {EXPORT_MARK: "1", "tool": f"ckaudit {__version__}", "run": logged.name.encode(errors="backslashreplace")}
    if logged.manifest is not None:
        metadata["run.json"] = encode(logged.manifest)
    return pa.schema([("step", pa.int64()), ("session", pa.int64()), *numbers, *words], metadata=metadata)


def batches(logged: LoggedScalars, described: Any, progress: Progress | None = None) -> Iterator[Any]:
    """Yield the lines as record batches."""
    import pyarrow as pa

    done, total = 0, logged.lines
    for table in logged.tables():
        known = table.recorded
        numbers = [
            pa.array(values, mask=None if known is None else ~known[index], from_pandas=False)
            for index, values in enumerate(table.values)
        ]
        words = [pa.array(texts, pa.string()) for texts in table.texts.values()]
        yield pa.record_batch([pa.array(table.steps), pa.array(table.sessions), *numbers, *words], schema=described)
        done += len(table.steps)
        if progress:
            progress(done, total)


def _write_parquet(logged: LoggedScalars, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the columns of the Arrow form, compressed, as read by DuckDB, pandas and Polars, one row group per piece."""
    from pyarrow.parquet import ParquetWriter

    described = schema(logged)
    with ParquetWriter(sink, described, compression="zstd") as writer:
        for batch in batches(logged, described, progress):
            writer.write_batch(batch)


def _write_csv(logged: LoggedScalars, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the columns of the Arrow form; an empty cell was not recorded, nan was recorded as NaN, words are quoted."""
    described = schema(logged)
    write_rows(described.names, batches(logged, described, progress), sink)


def write_rows(header: Iterable[str], pieces: Iterable[Any], sink: BinaryIO) -> None:
    """Write a header line followed by record batches; numbers in their shortest exact form, and no text acts as a formula."""
    from pyarrow.csv import WriteOptions, write_csv

    line = io.StringIO(newline="")
    # pyarrow's writer accepts no quotes in a name; this one quotes whatever contains a character of its line end.
    csv.writer(line, lineterminator="\r\n").writerow(map(inert, header))
    sink.write((line.getvalue().removesuffix("\r\n") + "\n").encode(errors="backslashreplace"))
    for piece in pieces:
        write_csv(_inert(piece), sink, WriteOptions(include_header=False))


def _inert(piece: Any) -> Any:
    """Return a record batch in which no text acts as a formula."""
    import pyarrow as pa

    columns = [
        pa.array([None if text is None else inert(text) for text in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in piece.columns
    ]
    return pa.record_batch(columns, names=[f"{index}" for index in range(len(columns))])


def _write_wandb_csv(logged: LoggedScalars, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the history that counts, in the style of W&B: `_step`, `_runtime`, `_timestamp`, then a column per name.

    Its steps only increase, so steps replaced by a resume are not in it. Names keep their own spelling; the column of sessions
    before them tells readers so.
    """
    counted = logged.counted()
    described = schema(counted)
    timed = "time" in described.names
    names = [name for name in described.names if name not in ("step", "session", "time")]
    started = [_first(counted)] if timed else []
    pieces = (_history(piece, names, started) for piece in batches(counted, described, progress))
    write_rows(["_step", *(["_runtime", "_timestamp"] if timed else []), EXPORT_SESSION, *names], pieces, sink)


def _first(counted: LoggedScalars) -> float:
    """Return the first time in the log."""
    return next(float(part.min()) for log in counted.sessions.values() for _, part in log.numbers["time"].joined())


def _history(piece: Any, names: list[str], started: list[float]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, shown = [piece["step"]], ["_step"]
    for start in started:
        columns += [pc.subtract(piece["time"], start), piece["time"]]
        shown += ["_runtime", "_timestamp"]
    numbered = [f"{index}" for index in range(len(names))]  # names may occur twice in a batch, so they are written by hand
    named = [piece[name] for name in names]
    return pa.record_batch([*columns, piece["session"], *named], names=[*shown, EXPORT_SESSION, *numbered])
