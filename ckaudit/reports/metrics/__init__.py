"""Series of metrics as a table on a screen, or as data for other programs: one module per format, loaded when asked for."""

from importlib import import_module
from typing import BinaryIO

from ckaudit.audit.measure import Measurement

DATA: dict[str, str] = {
    "json": "ckaudit.reports.metrics.json",
    "csv": "ckaudit.reports.metrics.csv",
    "parquet": "ckaudit.reports.metrics.parquet",
    "arrow": "ckaudit.reports.metrics.arrow",
}


def write(measurement: Measurement, format: str, sink: BinaryIO) -> None:  # noqa: A002  what the option is called
    """Write a measurement in one of `DATA`, a metric at a time."""
    import_module(DATA[format]).write(measurement, sink)
