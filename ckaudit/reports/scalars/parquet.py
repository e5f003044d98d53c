"""Parquet: the columns of the Arrow form, packed, as DuckDB, pandas and Polars read them."""

from typing import BinaryIO

from ckaudit.reports.scalars.arrow import batches, schema
from ckaudit.run.read import Progress
from ckaudit.run.scalars import Logged


def write(logged: Logged, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write a Parquet file, a row group for each piece."""
    from pyarrow.parquet import ParquetWriter

    described = schema(logged)
    with ParquetWriter(sink, described, compression="zstd") as writer:
        for batch in batches(logged, described, progress):
            writer.write_batch(batch)
