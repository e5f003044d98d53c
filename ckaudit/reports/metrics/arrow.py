"""Arrow IPC: the long form with typed columns; null is not recorded, NaN is a number."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ckaudit import __version__
from ckaudit.audit.measure import Measurement
from ckaudit.reports.escape import visible
from ckaudit.reports.metrics.long import pieces
from ckaudit.run.read import Progress


def write(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write an Arrow file, a piece at a time."""
    import pyarrow as pa

    described = schema(measurement)
    with pa.ipc.new_file(sink, described) as writer:
        for batch in batches(measurement, described, progress):
            writer.write_batch(batch)


def schema(measurement: Measurement) -> Any:
    """Return the types of the columns; the units stand in the metadata."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    units = {measured.name: measured.unit for measured in measurement.measured}
    metadata = {"tool": f"ckaudit {__version__}", "run": visible(measurement.subject), "units": msgspec.json.encode(units)}
    columns = [("step", pa.int64()), ("metric", word), ("label", word), ("value", pa.float64()), ("recorded", pa.bool_())]
    return pa.schema(columns, metadata=metadata)


def batches(measurement: Measurement, described: Any, progress: Progress | None = None) -> Iterator[Any]:
    """Yield the long form as record batches; all of them number metrics and labels alike."""
    import pyarrow as pa

    of_metric = _numbered([measured.name for measured in measurement.measured])
    of_label = _numbered([label for measured in measurement.measured for label in measured.series.labels])
    for piece in pieces(measurement, progress):
        size = len(piece.steps)
        values = pa.array(np.ascontiguousarray(piece.values), mask=~piece.recorded, from_pandas=False)
        columns = [pa.array(piece.steps), of_metric(piece.metric, size), of_label(piece.label, size), values]
        yield pa.record_batch([*columns, pa.array(np.ascontiguousarray(piece.recorded))], schema=described)


def _numbered(words: list[str]) -> Callable[[str, int], Any]:
    """Return a function that makes a column of one word repeated, out of a dictionary of all words."""
    import pyarrow as pa

    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    known = pa.array([visible(word) for word in numbers], pa.string())

    def column(word: str, size: int) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.full(size, numbers[word], np.int32)), known)

    return column
