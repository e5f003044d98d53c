"""The first lines of a table in text: its delimiter, its column names, and whether it is a table at all."""

import csv
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from ckaudit.importers.tables.numbers import MISSING_WORDS, number

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
HEAD_BYTES = 2**16
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
SAMPLE_LINES = 32
_COMMENT = re.compile(r"\s*#|sep=.?\Z", re.IGNORECASE)  # `sep=;` tells Excel the delimiter
_LINE_END = re.compile(r"\r\n|\r|\n")


def text_of(data: bytes) -> str:
    """Return the text of a file: UTF-16 with a byte order mark, else UTF-8; invalid characters are replaced.

    In UTF-8, zero bytes that a power cut left at the end are removed.
    """
    if data.startswith(UTF16_MARKS):
        return data.decode("utf-16", errors="replace")
    return data.rstrip(b"\0").decode("utf-8-sig", errors="replace")


@lru_cache(maxsize=8)
def sniff_table(head: bytes) -> tuple[str, list[str], list[list[str]]] | None:
    """Return delimiter, header and first rows of a table, or None where the text is not a table.

    The header has at least two names, none of which is a number. The delimiter is the one that gives the most names. The result
    is cached, because all table importers ask for it.
    """
    lines = [line for line in _LINE_END.split(text_of(head[:HEAD_BYTES]))[:SAMPLE_LINES] if line.strip()]
    if not lines or lines[0].lstrip()[:1] in ("{", "[", "<"):
        return None
    rows = {mark: list(csv.reader(lines, delimiter=mark)) for mark in DELIMITERS}
    places = {mark: header_place(rows[mark]) for mark in DELIMITERS}
    mark = max(DELIMITERS, key=lambda delimiter: len(rows[delimiter][places[delimiter]]))
    header = names_of(rows[mark][places[mark]])
    if len(header) < 2 or any(number(name) is not None for name in header):
        return None
    return mark, header, rows[mark][places[mark] + 1 :]


def header_place(rows: Sequence[Sequence[str]]) -> int:
    """Return the index of the header row: the first row that is not blank, except comments before another row of names.

    >>> header_place([["# planned=100"], ["step", "loss"], ["1", "2.5"]]), header_place([["# step", "loss"], ["1", "2.5"]])
    (1, 0)
    >>> header_place([["sep=", ""], ["step", "loss"], ["1", "2.5"]])
    1
    """
    filled = [place for place, row in enumerate(rows) if any(map(str.strip, row))]
    for place, after in pairwise(filled):
        if not _COMMENT.match(rows[place][0]) or any(number(cell) is not None for cell in rows[after]):
            return place
    return filled[-1] if filled else len(rows) - 1


@lru_cache(maxsize=8)
def is_table(head: bytes) -> bool:
    """Tell whether a text is certainly a table: its first rows are as wide as the header, and most cells are numbers or empty.

    The result is cached, because each importer of texts asks for it.
    """
    table = sniff_table(head)
    if table is None:
        return False
    _, header, rows = table
    return all(len(row) == len(header) for row in rows[:-1]) and holds_numbers(rows, len(header))


def names_of(record: list[str]) -> list[str]:
    """Return the names in a header line, without the comment sign that numpy writes before them."""
    return [name.strip() for name in (record[0].lstrip("# "), *record[1:])]


def holds_numbers(rows: list[list[str]], width: int) -> bool:
    """Tell whether the first rows that are as wide as the header hold mostly numbers or nothing."""
    cells = [cell for row in rows if len(row) == width for cell in row]
    numeric = sum(number(cell) is not None for cell in cells)
    numeric_or_empty = sum(cell.strip().lower() in MISSING_WORDS or number(cell) is not None for cell in cells)
    return numeric > 0 and 2 * numeric_or_empty > len(cells)
