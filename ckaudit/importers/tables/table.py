"""A table in text: comma, tab or semicolon between its cells, one header line, and rows that may be broken."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from msgspec import Struct, field

from ckaudit.errors import UnreadableError
from ckaudit.importers.tables.parse_number import MISSING_WORDS, number

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
HEAD_BYTES = 2**16
_SAMPLE_LINES = 32
_BLOCK_ROWS = 8192
_LINE_END = re.compile(r"\r\n|\r|\n")
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Table(Struct, frozen=True):
    """The wanted columns of a file.

    Attributes:
        header: Every column's name, as written.
        cells: Text of the wanted columns by their position in the header; columns are equally long.
        lines: Line of the file on which each row ends, from 1.
        delimiter: What stands between cells.
        notes: Rows that were not as long as the header, or could not be read.
    """

    header: tuple[str, ...]
    cells: dict[int, list[str]]
    lines: list[int]
    delimiter: str
    notes: list[str] = field(default_factory=list)


def text_of(data: bytes) -> str:
    """Return the text of a file: UTF-8, or UTF-16 where a byte order mark says so; broken characters are replaced.

    Zeros that a power cut left at the end are left out.
    """
    if data.startswith(UTF16_MARKS):
        return data.decode("utf-16", errors="replace")
    return data.rstrip(b"\0").decode("utf-8-sig", errors="replace")


@lru_cache(maxsize=8)
def sniffed(head: bytes) -> tuple[str, list[str], list[list[str]]] | None:
    """Return delimiter, header and first rows of a table, None where the text is no table; every importer of tables asks.

    The header has at least two names and none of its cells is a number; the delimiter is the one that gives most of them.
    """
    lines = [line for line in _LINE_END.split(text_of(head[:HEAD_BYTES]))[:_SAMPLE_LINES] if line.strip()]
    if not lines or lines[0].lstrip()[:1] in ("{", "[", "<"):
        return None
    rows = {mark: list(csv.reader(lines, delimiter=mark)) for mark in DELIMITERS}
    mark = max(DELIMITERS, key=lambda delimiter: len(rows[delimiter][0]))
    header = names_of(rows[mark][0])
    if len(header) < 2 or any(number(name) is not None for name in header):
        return None
    return mark, header, rows[mark][1:]


def is_table(head: bytes) -> bool:
    """Tell whether a text is a table for certain: each of its first rows is as wide as the header, and most cells are numbers."""
    found = sniffed(head)
    if found is None:
        return False
    _, header, rows = found
    return all(len(row) == len(header) for row in rows[:-1]) and holds_numbers(rows, len(header))


def names_of(record: list[str]) -> list[str]:
    """Return the names of a header line; numpy comments it out."""
    return [name.strip() for name in (record[0].lstrip("# "), *record[1:])]


def holds_numbers(rows: list[list[str]], width: int) -> bool:
    """Tell whether the first rows are as wide as the header and hold numbers or nothing."""
    cells = [cell for row in rows if len(row) == width for cell in row]
    numeric = sum(number(cell) is not None for cell in cells)
    return numeric > 0 and 2 * sum(cell.strip().lower() in MISSING_WORDS or number(cell) is not None for cell in cells) > len(
        cells
    )


def read_table(data: bytes, shown: str, wanted: set[int], delimiter: str) -> Table:
    """Read the wanted columns of every row.

    Args:
        data: The whole file.
        shown: Its name in messages.
        wanted: Positions of the columns to keep.
        delimiter: What stands between cells.

    Raises:
        UnreadableError: Where the header cannot be read, or no row stands below it.
    """
    table: Table | None = None
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
    if torn and odd.last_short == table.lines[-1]:
        _drop_last(table)
    table.notes.extend(odd.notes(torn=torn))
    return table


Block = tuple[list[list[str]], list[int], int | None]


def _blocks(text: str, delimiter: str) -> Iterator[Block]:
    """Yield rows, the line each ends on, and the line where a record was given up, such as a cell without end."""
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


def _empty_table(rows: list[list[str]], lines: list[int], wanted: set[int], delimiter: str) -> Table:
    """Take the header off the first rows; lines before it are blank."""
    start = next((index for index, row in enumerate(rows) if any(map(str.strip, row))), len(rows) - 1)
    header = tuple(names_of(rows[start])) if rows and rows[start] else ()
    del rows[: start + 1], lines[: start + 1]
    return Table(header, {position: [] for position in sorted(wanted) if position < len(header)}, [], delimiter)


def _take(table: Table, rows: list[list[str]], lines: list[int], odd: "_OddRows") -> None:
    width = len(table.header)
    if any(len(row) != width for row in rows):
        filled = [(row, line) for row, line in zip(rows, lines, strict=True) if row]
        odd.add([(row, line) for row, line in filled if len(row) != width], width)
        rows, lines = [row + [""] * (width - len(row)) for row, _ in filled], [line for _, line in filled]
    table.lines.extend(lines)
    for position, cells in table.cells.items():
        cells.extend([row[position] for row in rows])


def _drop_last(table: Table) -> None:
    table.lines.pop()
    for cells in table.cells.values():
        cells.pop()


class _OddRows(Struct):
    """Rows that are not as wide as the header, and records that could not be read."""

    ragged: int = 0
    lost: int = 0
    first: str = ""
    first_lost: int = 0
    last_short: int = -1

    def add(self, rows: Sequence[tuple[list[str], int]], width: int) -> None:
        self.ragged += len(rows)
        for row, line in rows:
            self.first = self.first or f"line {line:,} with {len(row):,} of {width:,} cells"
            self.last_short = line if len(row) < width else self.last_short

    def add_lost(self, line: int) -> None:
        self.lost += 1
        self.first_lost = self.first_lost or line

    def notes(self, *, torn: bool) -> list[str]:
        """Say what was done with them."""
        notes = []
        if self.ragged:
            notes.append(
                f"{self.ragged:,} rows are not as wide as the header, first {self.first}: "
                "missing cells count as not recorded, surplus ones were left out"
            )
        if self.lost:
            notes.append(
                f"{self.lost:,} records have a cell without end and were left out, first before line {self.first_lost:,}"
            )
        if torn:
            notes.append("the last line has no line end, so the file may have been cut there; a row cut short was left out")
        return notes
