"""Series of metrics as a table on a screen, or as data for other programs: one module per format, loaded when asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import BinaryIO

from ckaudit.audit.measure import Measurement

DATA: dict[str, str] = {
    "json": "ckaudit.reports.metrics.json",
    "csv": "ckaudit.reports.metrics.csv",
    "parquet": "ckaudit.reports.metrics.parquet",
    "arrow": "ckaudit.reports.metrics.arrow",
}


def write(
    measurement: Measurement,
    format: str,  # noqa: A002  what the option is called
    sink: BinaryIO,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a measurement in one of `DATA`, a piece at a time.

    Args:
        measurement: The metrics.
        format: One of `DATA`.
        sink: What is written to.
        progress: Called with columns done and columns in all.
    """
    import_module(DATA[format]).write(measurement, sink, progress)
