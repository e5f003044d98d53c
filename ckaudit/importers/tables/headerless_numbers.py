"""Numbers in a text without a header: a list as Python, JSON or NumPy writes it, one number per line, or rows of several."""

import re
from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import islice

from msgspec import Struct, field

from ckaudit.errors import UnreadableError
from ckaudit.importers.tables.growing_column import GrowingColumn
from ckaudit.importers.tables.numbers import MISSING_WORDS, Numbers, counted, number, numbers
from ckaudit.importers.tables.printed_tensors import number_in_tensor, with_plain_numbers
from ckaudit.importers.tables.table import column

MIN_NUMBERS = 5
MAX_COLUMNS = 64
MAX_TEXT = 2**26
"""Maximum number of characters of a list, which is searched as a whole: some three million numbers in full precision."""
MAX_CELLS = 20_000_000  # 160 MB of numbers
_BLOCK_ROWS = 8192
SAMPLE = 50
"""Number of lines, or of numbers in a list, from which a form is recognized."""

_OPEN = re.compile(r"\s*(?:[A-Za-z][\w.]{0,30}\(\s*)?\[")
_END = re.compile(r"\s*+(?:,\s*+[a-z_]{1,20}=[^,()\[\]]{1,60}+){0,4}\s*+\)?\s*+;?\s*+")
_ITEM = re.compile(r"[^\s,]+")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BRACKETS = str.maketrans("[]", "  ")
_MARKS: tuple[str | None, ...] = (";", "\t", ",", None)  # the last means blanks
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d{1,9},(\d{1,20})(?:[eE][+-]?\d{1,3})?\s*")
_TAKEN_FROM_PRINT = "its numbers were taken out of what Python prints of tensors or arrays"
_WRITE_NAMES = 'Write it with names, as {"train_loss": [...], "val_loss": [...]}.'


class HeaderlessColumns(Struct, frozen=True):
    """Columns of numbers without names; only a single column may have a header.

    Attributes:
        columns: One or more, equally long.
        lines: Line of each row, or its position in a list, from 1.
        notes: What was left out, or is unusual.
        header: The one name above a single column; empty: there is none.
    """

    columns: list[Numbers]
    lines: Sequence[int]
    notes: list[str] = field(default_factory=list)
    header: str = ""


def is_list(head: str) -> bool:
    r"""Tell whether a text begins as a list of numbers, or as lists of numbers; without brackets it must be one line.

    >>> is_list("[0.5, 0.4, NaN, 0.2, 0.1, 0."), is_list("array([0.5 0.4 0.3 0.2 0.1])"), is_list('[{"loss": 1}]')
    (True, True, False)
    >>> is_list("0.5 0.4 0.3 0.2 0.1 "), is_list("0.5 0.4 0.3\n0.2 0.1 0.1")
    (True, False)
    """
    text = with_plain_numbers(head).strip()
    begin = _OPEN.match(text)
    if begin is None and "\n" in text:
        return False
    end = text.find("]")
    body = text[begin.end() if begin else 0 : end if end >= 0 else len(text)]
    if "[" in body:
        body, end = text.translate(_BRACKETS), -1
    items = [match[0].strip("'\"") for match in islice(_ITEM.finditer(body), SAMPLE + 1)]
    whole = items[: SAMPLE if end >= 0 or begin is None or len(items) > SAMPLE else -1]
    return len(whole) >= MIN_NUMBERS and all(_cell(item) is not None or _is_missing(item) or item == "..." for item in whole)


def read_list(text: str, shown: str) -> HeaderlessColumns:
    """Read a list of numbers; without a closing bracket, the last number is left out because it may be truncated.

    Raises:
        UnreadableError: Where there is more than one list, or the list was printed without some of its numbers.
    """
    if len(text) > MAX_TEXT:
        raise UnreadableError(f"{shown} is a list of more than {MAX_TEXT:,} characters", hint="Write its series to a CSV file.")
    plain = with_plain_numbers(text)
    holds_tensors, text = plain != text, plain
    begin, end = _OPEN.match(text), text.find("]")
    inner = text[begin.end() if begin else 0 : end if end >= 0 else len(text)]
    if "[" in inner or (end >= 0 and not _END.fullmatch(text, end + 1)):
        raise UnreadableError(f"{shown} holds several lists of numbers, and nothing names them", hint=_WRITE_NAMES)
    if "..." in inner:
        raise UnreadableError(
            f"{shown} is an array that NumPy shortened as it was printed: most of its numbers are not there",
            hint="Save the array with numpy.savetxt or numpy.save.",
        )
    items = ((place, (match[0].strip("'\""),)) for place, match in enumerate(_ITEM.finditer(inner), 1))
    (only,), _, notes = _columns(items, 1, shown, "number")
    notes += [_TAKEN_FROM_PRINT] if holds_tensors else []
    if begin and end < 0:
        only = Numbers(only.values[:-1], only.recorded[:-1])
        notes.append("the list has no end, so the file may have been cut there: its last number was left out")
    return HeaderlessColumns([only], range(1, len(only.values) + 1), notes)


def has_decimal_commas(lines: Sequence[str], *, min_digits: int = 12) -> bool:
    """Tell whether each line is one number with a decimal comma: at least half have more digits after it than a count has.

    Args:
        lines: Some lines, of which the first may be a header.
        min_digits: Digits that a count does not have.

    >>> has_decimal_commas(["0,3510846238292013"] * 5), has_decimal_commas(["0,351"] * 5), has_decimal_commas(["0,0.35"] * 5)
    (True, False, False)
    """
    matches = [_DECIMAL_COMMA.fullmatch(line) for line in islice(filter(str.strip, lines), SAMPLE)]
    digits = sorted(len(match[1]) for match in matches if match)
    return len(digits) >= MIN_NUMBERS and None not in matches[1:] and digits[len(digits) // 2] >= min_digits


def header_of(lines: Sequence[str]) -> str | None:
    """Return the one word above lines of one number each, empty where there is none; None where the lines are not of this form.

    >>> header_of(["losses", *"12345"]), header_of([*"12345"]), header_of(["losses", "a", *"12345"]), header_of(["1 2"] * 9)
    ('losses', '', None, None)
    >>> header_of(["0", *["0.5"] * 5])
    '0'
    """
    filled = [line for line in lines if line.strip()]
    if has_decimal_commas(filled):
        filled = [line.replace(",", ".") for line in filled]
    is_named = bool(filled) and (_cell(filled[0]) is None or begins_with_numbered_header(filled))
    named = filled[0].strip().strip("#\"' ") if is_named else ""
    numeric = filled[1:] if named else filled
    is_bare = len(numeric) >= MIN_NUMBERS and all(_cell(line) is not None or _is_missing(line) for line in numeric[:SAMPLE])
    return named if is_bare and any(_cell(line) is not None for line in numeric) else None


def read_lines(text: str, header: str, shown: str) -> HeaderlessColumns:
    """Read one number per line, below a header if there is one.

    Raises:
        UnreadableError: Where there are more numbers than fit in memory.
    """
    has_commas = has_decimal_commas([line for _, line in islice(_filled_lines(text), SAMPLE)])
    filled = _filled_lines(text.replace(",", ".") if has_commas else text)
    rows = ((line_number, (line,)) for line_number, line in islice(filled, 1 if header else 0, None))
    columns, lines, notes = _columns(rows, 1, shown, "line")
    return HeaderlessColumns(
        columns, lines, [*notes, *(["its numbers were read with a decimal comma"] if has_commas else [])], header
    )


def row_width(lines: Sequence[str]) -> int:
    """Return the count of numbers per line; 0 where a line holds anything else, or the counts differ.

    >>> row_width(["0.5 ,0.4"] * 5), row_width(["1 0.5 0.9"] * 5), row_width(["step loss", *["1 0.5"] * 5])
    (2, 3, 0)
    """
    filled = [line for line in lines if line.strip()]
    rows = filled[1 if begins_with_numbered_header(filled) else 0 :][:SAMPLE]
    mark = _mark_of(rows)
    width = len(_filled_cells(rows[0], mark)) if rows else 0
    cells = [_cells(row, mark, width) for row in rows]
    if len(rows) < MIN_NUMBERS or not 1 < width <= MAX_COLUMNS or any(len(row) != width for row in cells):
        return 0
    first, *others = cells
    is_all = all(_cell(cell) is not None for cell in first) and all(
        _cell(cell) is not None or _is_missing(cell) for row in others for cell in row
    )
    return width if is_all else 0


def read_rows(text: str, width: int, shown: str) -> HeaderlessColumns:
    """Read rows of `width` numbers; lines with more or fewer are left out, with a note.

    Raises:
        UnreadableError: Where there are more numbers than fit in memory.
    """
    first = [row for _, row in islice(_filled_lines(text), 2)]
    mark = _mark_of(first[-1:])
    odd = array("q")
    filled = islice(_filled_lines(text), 1 if begins_with_numbered_header(first) else 0, None)
    columns, lines, notes = _columns(_whole_rows(filled, mark, width, odd), width, shown, "line")
    if odd:
        left_out = counted(len(odd), "line does", "lines do")
        notes.append(f"{left_out} not hold {width} numbers: left out, first line {odd[0]:,}")
    return HeaderlessColumns(columns, lines, notes)


def _whole_rows(
    lines: Iterable[tuple[int, str]], mark: str | None, width: int, odd: MutableSequence[int]
) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield line number and cells of each row with the right width; the line numbers of other rows are added to `odd`."""
    for line_number, line in lines:
        cells = _cells(line, mark, width)
        if len(cells) == width:
            yield line_number, cells
        else:
            odd.append(line_number)


def _columns(
    rows: Iterator[tuple[int, Sequence[str]]], width: int, shown: str, where: str
) -> tuple[list[Numbers], Sequence[int], list[str]]:
    """Return the columns of rows with `width` cells, the position of each row, and notes on their cells.

    Raises:
        UnreadableError: Where there are more numbers than fit in memory.
    """
    columns, places = [_Column() for _ in range(width)], array("q")
    while block := list(islice(rows, _BLOCK_ROWS)):
        at, cells = zip(*block, strict=True)
        for each, texts in zip(columns, zip(*cells, strict=True), strict=True):
            each.add(texts, at)
        places.extend(at)
        if len(places) * width > MAX_CELLS:
            raise UnreadableError(f"{shown} holds more than {MAX_CELLS:,} numbers", hint="Keep every tenth of them.")
    return [each.numbers() for each in columns], places, [note for each in columns for note in each.notes(where)]


def begins_with_numbered_header(rows: Sequence[str]) -> bool:
    """Tell whether the first row is the header that pandas writes for unnamed columns: their positions, from 0.

    >>> rows = [",0,1", "0,0.5,0.4"], ["0", "0.5"], ["0,1", "1,0.9"]
    >>> tuple(map(begins_with_numbered_header, rows))
    (True, True, False)
    """
    if len(rows) < 2:
        return False
    first, *others = cells = rows[0].strip().split(",")
    if not first:
        return bool(others) and others == list(map(str, range(len(others))))
    is_counted = cells == list(map(str, range(len(cells))))
    return is_counted and not any(cell.strip().isdigit() for cell in rows[1].split(","))


def _filled_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank with their line numbers, from 1, without a copy of all lines."""
    return ((number, line) for number, match in enumerate(_LINE.finditer(text), 1) if (line := match[0].strip("\r\n")).strip())


class _Column:
    """A column that grows block by block, and counts of its unusual cells."""

    def __init__(self) -> None:
        """Start empty."""
        self._cells = GrowingColumn()
        self._faulty = self._first = self._printed_tensors = 0

    def add(self, texts: Sequence[str], places: Sequence[int]) -> None:
        """Append cells; `places` are their positions."""
        read = column(texts)
        self._cells.add(numbers(read.values))
        self._printed_tensors += len(read.printed_tensors)
        if read.faulty:
            self._faulty, self._first = self._faulty + len(read.faulty), self._first or places[read.faulty[0]]

    def numbers(self) -> Numbers:
        """Return the cells."""
        return self._cells.numbers()

    def notes(self, where: str) -> list[str]:
        """Return notes on cells that are not numbers, or are printed tensors."""
        notes = [_TAKEN_FROM_PRINT] if self._printed_tensors else []
        if not self._faulty:
            return notes
        cells = counted(self._faulty, "cell is no number and counts", "cells are no numbers and count")
        return [f"{cells} as not recorded, first {where} {self._first:,}", *notes]


def _cell(text: str) -> float | None:
    value = number(text)
    return number_in_tensor(text) if value is None else value


def _is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING_WORDS


def _mark_of(rows: Sequence[str]) -> str | None:
    """Return the separator of a row's numbers: the first one that occurs; None: blanks."""
    return next((mark for mark in _MARKS if mark is None or (rows and mark in rows[0])), None)


def _filled_cells(row: str, mark: str | None) -> list[str]:
    return (row if mark is None else row.rstrip(f"{mark} \r\n")).split(mark)


def _cells(row: str, mark: str | None, width: int) -> list[str]:
    """Return the cells of a row; a trailing separator adds no cell."""
    cells = row.split(mark)
    return cells[:width] if not any(map(str.strip, cells[width:])) else cells
