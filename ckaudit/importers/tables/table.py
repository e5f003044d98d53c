"""Tables in text (CSV, TSV): the delimiter is guessed, wanted columns become numbers, and broken rows are noted.

A regular file is read by pyarrow, any other one row by row by the csv module; both give the same numbers.
"""

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ckaudit.errors import UnreadableError
from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.numbers import (
    MISSING_WORDS,
    Numbers,
    counted,
    float_of,
    from_arrow,
    number,
    numbers,
    recorded_in_full,
)
from ckaudit.importers.tables.printed_tensors import note_on_printed_tensors, number_in_tensor
from ckaudit.importers.tables.table_header import DELIMITERS, SAMPLE_LINES, header_place, names_of, text_of

LEAST_BYTES = 2**18  # loading pyarrow takes as long as reading this much with the csv module
_BLOCK_ROWS = 8192
_PIECE_BYTES = 2**24
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3}){0,4}")
_ODD = (b'"', b"(", b"\0")  # a quoted cell, the word nan(...), a hole in the file
Block = tuple[list[list[str]], list[int], int | None]


class TextTable(Struct, frozen=True):
    """The wanted columns of a file as text.

    Attributes:
        header: All column names, as written.
        cells: Text of the wanted columns by their position in the header; all columns have the same length.
        lines: Line of the file on which each row ends, from 1.
        delimiter: The separator of cells.
        notes: Rows with another width than the header, or that could not be read.
    """

    header: tuple[str, ...]
    cells: dict[int, list[str]]
    lines: list[int]
    delimiter: str
    notes: list[str] = field(default_factory=list)


class NumberTable(Struct, frozen=True):
    """The wanted columns of a table as numbers.

    Attributes:
        header: All column names, as written.
        columns: The wanted columns by their position in the header.
        lines: Line of the file on which each row ends, from 1.
        delimiter: The separator of cells; empty: the file is not text.
        notes: Cells that are not numbers, and rows that could not be read.
    """

    header: Sequence[str]
    columns: Mapping[int, Numbers]
    lines: Sequence[int]
    delimiter: str
    notes: list[str]

    @property
    def size_text(self) -> str:
        """The number of rows and the separator of their cells, in a few words."""
        between = f", {DELIMITERS[self.delimiter]} between cells" if self.delimiter else ""
        return f"{counted(len(self.lines), 'row', 'rows')}{between}"

    def rows(self, places: NDArray[np.int64]) -> "NumberTable":
        """Return the table of the rows at `places`."""
        columns = {position: column.at(places) for position, column in self.columns.items()}
        return NumberTable(self.header, columns, [self.lines[place] for place in places], self.delimiter, self.notes)


class NumberColumn(Struct, frozen=True):
    """One column of numbers.

    Attributes:
        values: None where nothing was recorded.
        faulty: Positions of cells that are neither a number nor a word for a missing value.
        commas: Number of cells read with a decimal comma.
        printed_tensors: Positions of cells that are a printed tensor or array of one number.
    """

    values: list[float | None]
    faulty: list[int] = field(default_factory=list)
    commas: int = 0
    printed_tensors: list[int] = field(default_factory=list)


def read_numbers(data: bytes, shown: str, header: Sequence[str], wanted: Collection[int], delimiter: str) -> NumberTable:
    """Read the numbers of the wanted columns; notes name the cells that are not numbers.

    Raises:
        UnreadableError: Where there is no row below the header.
    """
    if plain := plain_columns(data, len(header), wanted, delimiter):
        columns, rows = plain
        return NumberTable(header, columns, range(2, rows + 2), delimiter, [])
    return _with_care(read_table(data, shown, set(wanted), delimiter))


def plain_columns(data: bytes, width: int, wanted: Collection[int], delimiter: str) -> tuple[Mapping[int, Numbers], int] | None:
    """Return the wanted columns and the number of rows by pyarrow, or None where the csv module must read the file.

    That is so where a row has another width than the header, the last one lacks its line break, or a cell is neither empty nor
    a number to all parsers. Any file that this function reads, the csv module and Python's float read alike.

    Args:
        data: The whole file, its header in the first line.
        width: Number of columns.
        wanted: Positions of columns.
        delimiter: The separator of cells.
    """
    start = data.find(b"\n") + 1
    if len(data) < LEAST_BYTES or not 0 < start < len(data) or not _is_plain(data, start):
        return None
    count = data.count(b"\n", start)
    columns = {position: recorded_in_full(np.empty(count)) for position in sorted(wanted)}
    done = 0
    for piece in _pieces(data, start):
        read = _plain_piece(piece, width, sorted(wanted), delimiter)
        if read is None or done + len(read) > count:
            return None
        for position, column in columns.items():
            cells = from_arrow(read[str(position)])
            column.values[done : done + len(read)] = cells.values
            column.recorded[done : done + len(read)] = cells.recorded
        done += len(read)
    _free_arrow()
    return None if done < count else (columns, count)  # pyarrow skips blank lines: the numbers of later lines would be wrong


def _free_arrow() -> None:
    """Release the memory that Arrow keeps in its pool."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _pieces(data: bytes, start: int) -> Iterator[memoryview]:
    """Yield the lines from `start` on, some megabytes at a time, without copying them."""
    while start < len(data):
        end = len(data) if start + _PIECE_BYTES >= len(data) else data.rfind(b"\n", start, start + _PIECE_BYTES) + 1
        end = end if end > start else data.find(b"\n", start) + 1
        yield memoryview(data)[start:end]
        start = end


def _plain_piece(piece: memoryview, width: int, wanted: Sequence[int], delimiter: str) -> Any:
    """Return some lines of a table as an Arrow table of the wanted columns, named by position; None where they are irregular."""
    import pyarrow as pa
    from pyarrow import csv

    read = list(map(str, wanted))
    try:
        return csv.read_csv(
            pa.BufferReader(pa.py_buffer(piece)),
            csv.ReadOptions(column_names=list(map(str, range(width)))),
            csv.ParseOptions(delimiter=delimiter, quote_char=False),
            csv.ConvertOptions(include_columns=read, column_types=dict.fromkeys(read, pa.float64()), null_values=[""]),
        )
    except pa.ArrowInvalid:
        return None


def _is_plain(data: bytes, start: int) -> bool:
    return (
        data.endswith(b"\n")
        and b'"' not in data[:start]
        and bool(data[: start - 1].strip())
        and (b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"))
        and not any(data.find(odd, start) >= 0 for odd in _ODD)
    )


def _with_care(table: TextTable) -> NumberTable:
    """Return the columns of a table as numbers; notes name the cells that are not numbers."""
    columns, notes = {}, []
    for position, cells in table.cells.items():
        read = column(cells, decimal_comma=table.delimiter != ",")
        columns[position] = numbers(read.values)
        name = shorten_name(table.header[position])
        if read.faulty:
            first = read.faulty[0]
            what = counted(
                len(read.faulty), f"cell of {name} is no number and counts", f"cells of {name} are no numbers and count"
            )
            where = f"first {shorten_name(cells[first])!r} in line {table.lines[first]:,}"
            notes.append(f"{what} as not recorded, {where}")
        if read.commas:
            notes.append(f"{counted(read.commas, f'cell of {name} was', f'cells of {name} were')} read with a decimal comma")
        if read.printed_tensors:
            notes.append(note_on_printed_tensors(len(read.printed_tensors), name, cells[read.printed_tensors[0]]))
    return NumberTable(table.header, columns, table.lines, table.delimiter, [*notes, *table.notes])


def column(cells: Sequence[str], *, decimal_comma: bool = False) -> NumberColumn:
    """Read the cells of a column.

    Args:
        cells: Text as in the file.
        decimal_comma: Read "0,5" as 0.5.

    >>> column(["1e-3", "", "nan", "x", "tensor(0.5)"]).values
    [0.001, None, nan, None, 0.5]
    >>> column(["999", "1,000", "1,001"], decimal_comma=True).values
    [999.0, 1000.0, 1001.0]
    """
    with suppress(ValueError):
        return NumberColumn([float_of(cell) if cell else None for cell in cells])
    if _are_grouped(cells):
        cells = [cell.replace(",", "") for cell in cells]
    values: list[float | None] = []
    faulty: list[int] = []
    printed_tensors: list[int] = []
    commas = 0
    for position, cell in enumerate(cells):
        value = number(cell)
        if value is None and decimal_comma and _DECIMAL_COMMA.fullmatch(cell.strip()):
            value = float(cell.strip().replace(",", "."))
            commas += 1
        if value is None and cell.strip().lower() not in MISSING_WORDS:
            value = number_in_tensor(cell)
            (faulty if value is None else printed_tensors).append(position)
        values.append(value)
    return NumberColumn(values, faulty, commas, printed_tensors)


def _are_grouped(cells: Sequence[str]) -> bool:
    """Tell whether a column counts with thousands separators: from below 1,000 without one to above with one, never falling."""
    texts = [text for cell in cells if (text := cell.strip())]
    counts = [int(text.replace(",", "")) for text in texts if _GROUPED.fullmatch(text)]
    return len(counts) == len(texts) > 0 and counts[0] < 1000 <= counts[-1] and counts == sorted(counts)


def read_table(data: bytes, shown: str, wanted: set[int], delimiter: str) -> TextTable:
    """Read the wanted columns of all rows.

    Args:
        data: The whole file.
        shown: Its name in messages.
        wanted: Positions of the columns to keep.
        delimiter: The separator of cells.

    Raises:
        UnreadableError: Where the header cannot be read, or there is no row below it.
    """
    table: TextTable | None = None
    odd = _OddRows()
    for rows, lines, lost in _blocks(text_of(data), delimiter):
        table = table or _empty_table(rows, lines, wanted, delimiter)
        _take(table, rows, lines, odd)
        if lost is not None:
            odd.add_lost(lost)
    torn = not data.endswith((b"\n", b"\r", b"\0"))
    if table is None or max(wanted) >= len(table.header):
        raise UnreadableError(
            f"the header line of {shown} cannot be read: a cell has no end", hint="Look for an odd quote in it."
        )
    if not table.lines:
        raise UnreadableError(f"{shown} has a header line and no rows below it", hint="Import it when something was logged.")
    if 2 * odd.wide > len(table.lines):
        raise _torn_header(shown, len(table.header), odd)
    if torn and odd.last_short == table.lines[-1]:
        table.lines.pop()
        for cells in table.cells.values():
            cells.pop()
    table.notes.extend(odd.notes(torn=torn))
    return table


def _blocks(text: str, delimiter: str) -> Iterator[Block]:
    """Yield rows, the line on which each row ends, and the line of an unreadable record, such as a cell without end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    lines: list[int] = []
    while True:
        lost = None
        try:
            for row in islice(reader, _BLOCK_ROWS):
                rows.append(row)
                lines.append(reader.line_num)
        except csv.Error:
            lost = reader.line_num
        if not rows and lost is None:
            return
        yield rows, lines, lost
        rows, lines = [], []


def _empty_table(rows: list[list[str]], lines: list[int], wanted: set[int], delimiter: str) -> TextTable:
    """Take the header off the first rows; lines before it are blank or comments."""
    start = header_place(rows[:SAMPLE_LINES])
    header = tuple(names_of(rows[start])) if rows and rows[start] else ()
    del rows[: start + 1], lines[: start + 1]
    return TextTable(header, {position: [] for position in sorted(wanted) if position < len(header)}, [], delimiter)


def _take(table: TextTable, rows: list[list[str]], lines: list[int], odd: "_OddRows") -> None:
    width = len(table.header)
    if any(len(row) != width for row in rows):
        filled = [(row, line) for row, line in zip(rows, lines, strict=True) if row]
        odd.add([(row, line) for row, line in filled if len(row) != width], width)
        rows, lines = [row + [""] * (width - len(row)) for row, _ in filled], [line for _, line in filled]
    table.lines.extend(lines)
    for position, cells in table.cells.items():
        cells.extend([row[position] for row in rows])


def _torn_header(shown: str, width: int, odd: "_OddRows") -> UnreadableError:
    """Return the error for a table in which most rows have more cells than there are names, so that columns are uncertain."""
    return UnreadableError(
        f"the header line of {shown} is torn: it names {width:,} columns, and {odd.wide:,} rows have more cells "
        f"(first {odd.first}), so no name can be told to be whose",
        hint="Write the name of every column into its first line; R leaves out that of the row names (col.names = NA writes it).",
    )


class _OddRows(Struct):
    """Rows with another width than the header, and records that could not be read.

    Attributes:
        ragged: Number of rows of another width.
        wide: Number of rows with text in a cell without a name.
    """

    ragged: int = 0
    wide: int = 0
    lost: int = 0
    first: str = ""
    first_lost: int = 0
    last_short: int = -1

    def add(self, rows: Sequence[tuple[list[str], int]], width: int) -> None:
        self.ragged += len(rows)
        for row, line in rows:
            self.first = self.first or f"line {line:,} with {len(row):,} of {width:,} cells"
            self.last_short = line if len(row) < width else self.last_short
            self.wide += any(map(str.strip, row[width:]))

    def add_lost(self, line: int) -> None:
        self.lost += 1
        self.first_lost = self.first_lost or line

    def notes(self, *, torn: bool) -> list[str]:
        """Return notes on the treatment of these rows."""
        notes = []
        if self.ragged:
            notes.append(
                f"{counted(self.ragged, 'row is', 'rows are')} not as wide as the header, first {self.first}: "
                "missing cells count as not recorded, surplus ones were left out"
            )
        if self.lost:
            notes.append(
                f"{counted(self.lost, 'record has', 'records have')} a cell without end: left out, first before line "
                f"{self.first_lost:,}"
            )
        if torn:
            notes.append("the last line has no line end, so the file may have been cut there; a row cut short was left out")
        return notes
