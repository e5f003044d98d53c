"""JSON: `ck.metrics.v1`, steps by labels for each metric."""

from typing import BinaryIO

import msgspec
import numpy as np

from ckaudit import __version__
from ckaudit.audit.measure import Measured, Measurement
from ckaudit.contract.schema.metrics import VERSION, Metrics, MetricTable
from ckaudit.contract.schema.numbers import Number, to_word
from ckaudit.reports.escape import visible
from ckaudit.run.read import Progress
from ckaudit.run.series import Floats, Mask


def write(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write one document; only one metric of it is in memory as text."""
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


def _table(measured: Measured) -> MetricTable:
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
    """Return one column, shape (T,), with None where not recorded and words where not finite."""
    made: list[Number | None] = values.tolist()
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        made[row] = to_word(float(values[row])) if recorded[row] else None
    return made
