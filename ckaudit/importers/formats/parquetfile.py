"""Parquet files: one row per logged step, columns with any names; several runs where a column tells them apart.

Null is not recorded. NaN is recorded as NaN, unless it occurs between the numbers of its column so often that it can only
mean *no value*, as data frames write it. A column of texts is read where it holds numbers. The name of a nested member joins the
names by dots.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.io.files import false_parquet_size
from ckaudit.errors import UnreadableError
from ckaudit.importers.formats.csvfile import choices_of, columns_to_read, imported_runs, with_split_columns
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.long_form import LabelColumn, label_columns, split_of
from ckaudit.importers.tables.numbers import Numbers, from_arrow, numbers, unrecorded_column
from ckaudit.importers.tables.table import NumberTable

NAME = "Parquet"
GENERIC = True
MAGIC = b"PAR1"
MAX_CELLS = 40_000_000  # 320 MB of numbers


def detects(source: Source) -> bool:
    """Tell whether the file begins with the magic bytes of Parquet."""
    return source.head.startswith(MAGIC)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table, one run for each name in a column of runs.

    Raises:
        UnreadableError: Where the file is broken, or no column can be recognised.
        UsageError: Where `columns` names something that does not exist.
    """
    file = opened(source)
    header = [name for name, _ in _leaves(file.schema_arrow)]
    names = label_columns(header)
    known = {name: column for name, column in columns.items() if column in header or not names}
    wanted = columns_to_read(header, choices_of(header, known, source.shown))
    table = columns_of(file, list(dict.fromkeys([*(header[position] for position in sorted(wanted)), *names])), source.shown)
    values = {position: numbers_of(table[header[position]]) for position in wanted}
    labels = {name: LabelColumn.of_codes(*coded(table[name])) for name in names}
    parsed = NumberTable(header, values, range(1, file.metadata.num_rows + 1), "", [])
    if split := split_of(labels):
        parsed = with_split_columns(parsed, split, labels[split])
    return imported_runs(parsed, labels, choices_of(parsed.header, columns, source.shown), source.shown, NAME)


def opened(source: Source) -> Any:
    """Return the open file; columns of texts are dictionary-encoded, so that repeated texts take little memory.

    Raises:
        UnreadableError: Where the file is broken or truncated.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        schema = parquet.ParquetFile(pa.BufferReader(source.data)).schema_arrow
        texts = [name for name, kind in _leaves(schema) if pa.types.is_string(kind) or pa.types.is_large_string(kind)]
        file = parquet.ParquetFile(pa.BufferReader(source.data), read_dictionary=texts)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _broken(source.shown, error) from None
    if wrong := false_parquet_size(file.metadata, len(source.data)):
        raise _broken(source.shown, OSError(wrong))
    return file


def columns_of(file: Any, names: Sequence[str], shown: str) -> Mapping[str, Any]:
    """Return columns by name; nested members have dotted names.

    Raises:
        UnreadableError: Where the file is broken, or the columns do not fit in memory.
    """
    import pyarrow as pa

    if file.metadata.num_rows * len(names) > MAX_CELLS:
        raise UnreadableError(
            f"{shown} holds {file.metadata.num_rows:,} rows of {len(names):,} columns, more than fit in memory",
            hint="Split it by runs, or keep the columns that matter.",
        )
    try:
        table = file.read(columns=list(names))
        while any(pa.types.is_struct(column.type) for column in table.schema):
            table = table.flatten()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _broken(shown, error) from None
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if any(len(column) != file.metadata.num_rows for column in columns.values()):
        raise _broken(shown, OSError(f"a column has not the {file.metadata.num_rows:,} rows that the file says it has"))
    if missing := [name for name in names if name not in columns]:
        raise _broken(shown, KeyError(f"there is no column {shorten_name(missing[0])}"))
    return columns


def numbers_of(column: Any) -> Numbers:
    """Return a column as numbers: times become Unix seconds, texts are parsed."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        seconds = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        read = numbers_of(column.cast(pa.int64()))
        return Numbers(read.values / seconds, read.recorded)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return from_arrow(column if pa.types.is_float64(kind) else column.cast(pa.float64(), safe=False))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        codes, texts = coded(column)
        read = numbers([*texts, None])
        return read.at(codes)
    return unrecorded_column(len(column))


def coded(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return a column of texts as indices into a list of its distinct texts, and that list; -1: the cell is empty."""
    import pyarrow as pa

    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    chunks = column.unify_dictionaries().chunks
    if not chunks:
        return np.zeros(0, np.int64), []
    codes = [np.asarray(chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64) for chunk in chunks]
    texts, places = texts_of(chunks[0].dictionary), np.concatenate(codes)
    return np.where(places < len(texts), places, -1), texts  # a broken file has indices out of range


def texts_of(column: Any) -> list[Any]:
    """Return cells as Python objects; invalid characters of a text are replaced."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        codes, texts = coded(column)
        return [None if code < 0 else texts[code] for code in codes.tolist()]
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        data = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()).to_pylist()
        return [None if cell is None else cell.decode(errors="replace") for cell in data]


def _leaves(schema: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the type of each column."""
    import pyarrow as pa

    for field in schema:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{before}{field.name}.")
        else:
            yield f"{before}{field.name}", field.type


def _broken(shown: str, error: Exception) -> UnreadableError:
    reason = str(error.args[0] if isinstance(error, KeyError) else error).partition("\n")[0][:200]
    return UnreadableError(
        f"{shown} is a Parquet file that cannot be read: {reason}", hint="Was it only half written? Fetch it again."
    )
