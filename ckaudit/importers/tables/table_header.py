"""The first lines of a table in text: its delimiter, the names of its columns, and whether it is one at all."""

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
_LINE_END = re.compile(r"\r\n|\r|\n")


def text_of(data: bytes) -> str:
    """Return the text of a file: UTF-8, or UTF-16 where a byte order mark says so; broken characters are replaced.

    Zeros that a power cut left at the end are left out.
    """
    if data.startswith(UTF16_MARKS):
        return data.decode("utf-16", errors="replace")
    return data.rstrip(b"\0").decode("utf-8-sig", errors="replace")


@lru_cache(maxsize=8)
def sniff_table(head: bytes) -> tuple[str, list[str], list[list[str]]] | None:
    """Return delimiter, header and first rows of a table, None where the text is no table.

    The header has at least two names, none of which is a number. The delimiter is the one that gives the most names. The answer
    is cached, because every importer of tables asks.
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
    """Return which row names the columns: the first that holds anything, comments before another row of names left out.

    >>> header_place([["# planned=100"], ["step", "loss"], ["1", "2.5"]]), header_place([["# step", "loss"], ["1", "2.5"]])
    (1, 0)
    """
    filled = [place for place, row in enumerate(rows) if any(map(str.strip, row))]
    for place, after in pairwise(filled):
        if not rows[place][0].lstrip().startswith("#") or any(number(cell) is not None for cell in rows[after]):
            return place
    return filled[-1] if filled else len(rows) - 1


def is_table(head: bytes) -> bool:
    """Tell whether a text is a table for certain: each of its first rows is as wide as the header, and most cells are numbers."""
    table = sniff_table(head)
    if table is None:
        return False
    _, header, rows = table
    return all(len(row) == len(header) for row in rows[:-1]) and holds_numbers(rows, len(header))


def names_of(record: list[str]) -> list[str]:
    """Return the names of a header line; the comment sign that numpy writes before them is taken off."""
    return [name.strip() for name in (record[0].lstrip("# "), *record[1:])]


def holds_numbers(rows: list[list[str]], width: int) -> bool:
    """Tell whether the first rows are as wide as the header and hold numbers or nothing."""
    cells = [cell for row in rows if len(row) == width for cell in row]
    numeric = sum(number(cell) is not None for cell in cells)
    numeric_or_empty = sum(cell.strip().lower() in MISSING_WORDS or number(cell) is not None for cell in cells)
    return numeric > 0 and 2 * numeric_or_empty > len(cells)
