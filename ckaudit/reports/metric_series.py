"""Series of metrics for other programs: JSON, CSV, Arrow and Parquet, written piece by piece."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct

from ckaudit import __version__
from ckaudit.audit.measure import MeasuredMetric, Measurement
from ckaudit.contract.schema.metrics import VERSION, Metrics, MetricTable
from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.contract.schema.scalars import inert
from ckaudit.reports.escape import visible
from ckaudit.run.read import Progress
from ckaudit.run.series import Floats, Mask, Steps

DATA = ("json", "csv", "parquet", "arrow")
ROWS = 500_000  # in a group: groups of a few rows take more space than their values
COLUMNS = ("step", "metric", "label", "value", "recorded")


class SeriesPart(Struct, frozen=True, eq=False):
    """Some steps of one label of one metric; steps, values and recorded have the shape (N,)."""

    metric: str
    label: str
    steps: Steps
    values: Floats
    recorded: Mask


def write(
    measurement: Measurement,
    format: str,  # noqa: A002  what the option is called
    sink: BinaryIO,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a measurement in one of `DATA`, piece by piece.

    Args:
        measurement: The metrics.
        format: One of `DATA`.
        sink: Where to write.
        progress: Called with the columns done and the total.
    """
    writers = {"json": _write_json, "csv": _write_csv, "parquet": _write_parquet, "arrow": _write_arrow}
    writers[format](measurement, sink, progress)


def _write_json(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write a `ck.metrics.v1` document, steps by labels for each metric; only one metric at a time is in memory as text."""
    head = Metrics(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        subject=visible(measurement.subject),
        step=measurement.step,
        files=measurement.files,
        missing=list(measurement.missing),
        notes=list(map(visible, measurement.notes)),
        metrics=[],
    )
    sink.write(msgspec.json.encode(head).removesuffix(b"]}"))
    for index, measured in enumerate(measurement.measured):
        sink.writelines([b",\n" if index else b"\n", msgspec.json.encode(_table(measured))])
        if progress:
            progress(index + 1, len(measurement.measured))
    sink.write(b"\n]}\n")


def _table(measured: MeasuredMetric) -> MetricTable:
    series = measured.series
    return MetricTable(
        name=measured.name,
        title=measured.title,
        unit=measured.unit,
        source=measured.source,
        steps=series.steps.tolist(),
        labels=[visible(label) for label in series.labels],
        values=[cells(series.values[:, column], series.recorded[:, column]) for column in range(len(series.labels))],
    )


def cells(values: Floats, recorded: Mask) -> list[Number | None]:
    """Return one column, shape (T,), with None for values not recorded and words for values that are not finite."""
    column: list[Number | None] = values.tolist()
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        column[row] = encode_float(float(values[row])) if recorded[row] else None
    return column


def _write_csv(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the long form as RFC 4180: values not recorded are empty cells, values that are not finite are words."""
    sink.write((",".join(COLUMNS) + "\n").encode())
    sink.writelines(_csv_lines(piece).encode() for piece in pieces(measurement, progress))


def _csv_lines(piece: SeriesPart) -> str:
    values = [repr(value) for value in piece.values.tolist()]
    for row in np.flatnonzero(~np.isfinite(piece.values)).tolist():
        values[row] = str(encode_float(float(piece.values[row]))) if piece.recorded[row] else ""
    names = f"{quoted(piece.metric)},{quoted(piece.label)}"
    flags = ["true" if known else "false" for known in piece.recorded.tolist()]
    rows = zip(piece.steps.tolist(), values, flags, strict=True)
    return "".join([f"{step},{names},{value},{flag}\n" for step, value, flag in rows])


def quoted(text: str) -> str:
    """Return one cell, quoted if necessary.

    >>> quoted('a "b", c')
    '"a ""b"", c"'
    """
    text = inert(visible(text))
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _write_arrow(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the long form with typed columns; null means not recorded, NaN is a number."""
    import pyarrow as pa

    described = schema(measurement)
    with pa.ipc.new_file(sink, described) as writer:
        for batch in batches(measurement, described, progress):
            writer.write_batch(batch)


def schema(measurement: Measurement) -> Any:
    """Return the types of the columns; the units are in the metadata."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    units = {measured.name: measured.unit for measured in measurement.measured}
    metadata = {"tool": f"ckaudit {__version__}", "run": visible(measurement.subject), "units": msgspec.json.encode(units)}
    columns = [("step", pa.int64()), ("metric", word), ("label", word), ("value", pa.float64()), ("recorded", pa.bool_())]
    return pa.schema(columns, metadata=metadata)


def batches(measurement: Measurement, described: Any, progress: Progress | None = None) -> Iterator[Any]:
    """Yield the long form as record batches, all with the same numbering of metrics and labels."""
    import pyarrow as pa

    of_metric = _numbered([measured.name for measured in measurement.measured])
    of_label = _numbered([label for measured in measurement.measured for label in measured.series.labels])
    for piece in pieces(measurement, progress):
        size = len(piece.steps)
        values = pa.array(np.ascontiguousarray(piece.values), mask=~piece.recorded, from_pandas=False)
        columns = [pa.array(piece.steps), of_metric(piece.metric, size), of_label(piece.label, size), values]
        yield pa.record_batch([*columns, pa.array(np.ascontiguousarray(piece.recorded))], schema=described)


def _numbered(words: list[str]) -> Callable[[str, int], Any]:
    """Return a function that makes a column repeating one word, from a dictionary of all words."""
    import pyarrow as pa

    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    known = pa.array([visible(word) for word in numbers], pa.string())

    def column(word: str, size: int) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.full(size, numbers[word], np.int32)), known)

    return column


def _write_parquet(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write the columns of the Arrow form, compressed, as read by DuckDB, pandas and Polars, one row group at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    described = schema(measurement)
    waiting, rows = [], 0
    with ParquetWriter(sink, described, compression="zstd") as writer:
        for batch in batches(measurement, described, progress):
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= ROWS:
                writer.write_table(pa.Table.from_batches(waiting, described))
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, described))


def pieces(measurement: Measurement, progress: Progress | None = None, *, max_steps: int = 250_000) -> Iterator[SeriesPart]:
    """Yield the long form that data programs prefer: a line for each step, metric and label.

    It covers all metrics, each label from its first step to its last, at most `max_steps` steps at a time.
    """
    total, done = sum(len(measured.series.labels) for measured in measurement.measured), 0
    for measured in measurement.measured:
        series = measured.series
        for column, label in enumerate(series.labels):
            done += 1
            if progress:
                progress(done, total)
            for start in range(0, len(series.steps), max_steps):
                rows = slice(start, start + max_steps)
                yield SeriesPart(
                    measured.name, label, series.steps[rows], series.values[rows, column], series.recorded[rows, column]
                )
