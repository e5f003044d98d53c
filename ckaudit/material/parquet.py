"""Rows of a Parquet file, one at a time: a column chunk that unpacks beyond reason is refused before it is read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ckaudit.contract.io.files import MAX_BYTES, MAX_RATIO
from ckaudit.errors import UsageError
from ckaudit.material.columns import Columns
from ckaudit.material.faults import NOT_PARQUET, Tell
from ckaudit.material.files import SampleFile
from ckaudit.optional import install_command

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

ROWS = 64  # of one batch: a page with the same long text in every row is unpacked row by row


def parquet_rows(file: SampleFile, columns: Columns, tell: Tell) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row by its number, from 1, with the columns that are asked for.

    Raises:
        UsageError: Where pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UsageError("reading Parquet needs pyarrow", hint=install_command("data")) from None
    number = 0
    if not file.path.is_file() or (file.root and not file.path.resolve().is_relative_to(file.root.resolve())):
        tell(NOT_PARQUET.at(file.shown, "is no regular file, or a link that leads out of the folder"))
        return
    try:
        with ParquetFile(file.path, read_dictionary=_texts(file), thrift_string_size_limit=MAX_BYTES) as stream:
            if (bomb := _bomb(stream)) is not None:
                tell(NOT_PARQUET.at(file.shown, bomb))
                return
            there = columns.wanted(stream.schema_arrow.names)
            for batch in stream.iter_batches(batch_size=ROWS, columns=there, use_threads=False):
                arrays = list(zip(batch.schema.names, batch.columns, strict=True))
                for row in range(batch.num_rows):
                    number += 1
                    yield number, {name: array[row].as_py() for name, array in arrays}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        tell(NOT_PARQUET.at(file.shown, f"cannot be read after row {number}: {str(error).splitlines()[0][:200]}"))


def column_names(file: SampleFile) -> list[str]:
    """Return the columns of a file that was read before; none where it could not be."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(file.path).names)
    except (pa.ArrowException, OSError):
        return []


def _texts(file: SampleFile) -> list[str]:
    """Return the columns of text: they stay dictionaries, where a text that stands in every row is held once."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    schema = read_schema(file.path)
    return [each.name for each in schema if pa.types.is_string(each.type) or pa.types.is_large_string(each.type)]


def _bomb(stream: "ParquetFile") -> str | None:
    for index in range(stream.metadata.num_row_groups):
        group = stream.metadata.row_group(index)
        for each in map(group.column, range(group.num_columns)):
            packed, full = each.total_compressed_size, each.total_uncompressed_size
            if full > MAX_BYTES and full > MAX_RATIO * max(packed, 1):
                return f"row group {index} unpacks {packed:,} bytes to {full:,}; it was not read"
    return None
