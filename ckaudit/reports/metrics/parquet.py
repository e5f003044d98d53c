"""Parquet: the columns of the Arrow form, packed, as DuckDB, pandas and Polars read them."""

from typing import BinaryIO

from ckaudit.audit.measure import Measurement
from ckaudit.reports.metrics.arrow import batches, schema
from ckaudit.run.read import Progress

ROWS = 500_000  # in a group: groups of a few rows each take more room than their values


def write(measurement: Measurement, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write a Parquet file, a row group at a time."""
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
