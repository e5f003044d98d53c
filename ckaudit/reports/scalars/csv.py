"""CSV: the columns of the Arrow form; an empty cell is not recorded, nan was recorded as NaN, words stand in quotes."""

import csv
import io
from collections.abc import Iterable
from typing import Any, BinaryIO

from ckaudit.reports.scalars.arrow import batches, schema
from ckaudit.run.read import Progress
from ckaudit.run.scalars import Logged


def write(logged: Logged, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write a CSV file, some lines at a time."""
    described = schema(logged)
    write_rows(described.names, batches(logged, described, progress), sink)


def write_rows(header: Iterable[str], pieces: Iterable[Any], sink: BinaryIO) -> None:
    """Write a header line and record batches below it; each number as short as it can be read back exactly."""
    from pyarrow.csv import WriteOptions, write_csv

    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(header)  # that of pyarrow takes no quote in a name
    sink.write(line.getvalue().encode(errors="backslashreplace"))
    for piece in pieces:
        write_csv(piece, sink, WriteOptions(include_header=False))
