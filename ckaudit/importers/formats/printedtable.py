"""Printed tables: a line of names, separated by two blanks or by bars, and numbers below, as fastai shows them.

    epoch     train_loss  valid_loss  accuracy  time
    0         0.123456    0.234567    0.95      00:12

Bars may surround the cells or only separate them, and box lines may surround the rows. Other lines between the rows are ignored.
Where the line of names is repeated, another run begins. A table is read as a CSV file.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from ckaudit.importers.formats import csvfile
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.numbers import MISSING_WORDS, number
from ckaudit.importers.text.log import is_text
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "printed table"
GENERIC = True
HEAD_BYTES = 2**18
MIN_ROWS = 3
_LOSSES = ("train_loss_raw", "val_loss")
_BOX_BARS = str.maketrans("│┃║", "|||")
_OF_A_LOSS = re.compile(rb"loss|nll|entropy", re.IGNORECASE)
_BETWEEN = re.compile(r" {2,}|\t")


def detects(source: Source) -> bool:
    """Tell whether the text has a line of names with a loss among them, and several rows below it with as many cells."""
    if not is_text(source) or not _OF_A_LOSS.search(source.data[:HEAD_BYTES]):
        return False
    return sum(map(len, _tables(source.data[:HEAD_BYTES]))) > MIN_ROWS


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the table.

    Raises:
        UnreadableError: Where no column can be recognised, or none holds a value.
        UsageError: Where `columns` names something that does not exist.
    """
    runs = list(_tables(source.data))
    names, *_ = runs[0]
    lines = [["run", *names], *([str(number), *row] for number, (_, *rows) in enumerate(runs, 1) for row in rows)]
    text = "\n".join("\t".join(line if len(runs) > 1 else line[1:]) for line in lines)
    table, labels = csvfile.labelled_table(source.with_data(f"{text}\n".encode()), columns)
    choices = csvfile.choices_of(table.header, columns, source.shown)
    return csvfile.imported_runs(replace(table, delimiter=""), labels, choices, source.shown, NAME)


def _tables(data: bytes) -> Iterator[list[list[str]]]:
    """Yield the cells of each table with rows, names first; all tables have the names of the first one."""
    table: list[list[str]] = []
    for _, line in numbered_lines(data):
        cells = _cells(line) if len(line) <= MAX_LINE else []
        if (not table and _are_names(cells)) or (table and cells == table[0]):
            if len(table) > 1:
                yield table
            table = [cells]
        elif table:
            cells = cells if len(cells) == len(table[0]) else line.split()
            table += [cells] if len(cells) == len(table[0]) and _holds_numbers(cells) else []
    if len(table) > 1:
        yield table


def _are_names(cells: list[str]) -> bool:
    return any(catalogue_name(cell) in _LOSSES for cell in cells) and not any(map(_is_number, cells))


def _cells(line: str) -> list[str]:
    """Return the cells between bars, or between gaps of two and more blanks."""
    inner = line.translate(_BOX_BARS).strip()
    return [cell.strip() for cell in (inner.strip("|").split("|") if "|" in inner else _BETWEEN.split(inner))]


def _holds_numbers(cells: list[str]) -> bool:
    known = [cell for cell in cells if cell.lower() not in MISSING_WORDS]
    return 2 * sum(map(_is_number, known)) > len(known)


def _is_number(cell: str) -> bool:
    return number(cell) is not None
