"""The quick way through a table: numbers of a file without anything odd, by pyarrow's reader instead of the csv module."""

from collections.abc import Collection, Mapping

from ckaudit.importers.tables.arrow import from_floats
from ckaudit.importers.tables.numbers import Numbers

LEAST_BYTES = 2**18  # loading pyarrow takes as long as reading this much with the csv module
_ODD = (b'"', b"(", b"\0")  # a quoted cell, the word nan(...), a hole in the file


def plain_columns(data: bytes, width: int, wanted: Collection[int], delimiter: str) -> tuple[Mapping[int, Numbers], int] | None:
    """Return the wanted columns and the number of rows, None where the file must be read with care.

    That is wherever a row is not as wide as the header, the last one has no line end, or a cell is neither empty nor a number
    as every reader understands it: whatever this function reads, the csv module and Python's float read alike.

    Args:
        data: The whole file, its header in the first line.
        width: Number of columns.
        wanted: Positions of columns.
        delimiter: What stands between cells.
    """
    start = data.find(b"\n") + 1
    if len(data) < LEAST_BYTES or not 0 < start < len(data) or not _is_plain(data, start):
        return None
    import pyarrow as pa
    from pyarrow import csv

    names = [str(position) for position in range(width)]
    kept = [str(position) for position in sorted(wanted)]
    try:
        table = csv.read_csv(
            pa.BufferReader(pa.py_buffer(memoryview(data)[start:])),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter=delimiter, quote_char=False),
            csv.ConvertOptions(include_columns=kept, column_types=dict.fromkeys(kept, pa.float64()), null_values=[""]),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != data.count(b"\n", start):  # it passes over blank lines, and later ones would be told by a wrong number
        return None
    return {int(name): from_floats(table[name]) for name in kept}, table.num_rows


def _is_plain(data: bytes, start: int) -> bool:
    return (
        data.endswith(b"\n")
        and b'"' not in data[:start]
        and bool(data[: start - 1].strip())
        and (b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"))
        and not any(data.find(odd, start) >= 0 for odd in _ODD)
    )
