"""Jupyter notebooks as they are saved, `.ipynb` of nbformat 4: the trainings in the outputs of their cells.

What a cell printed is read as the log that it is, and so is a table that the Hugging Face Trainer or fastai shows: its first
column counts steps or epochs, and another is a loss. Of a cell that has both, what tells more steps counts. Each cell is a run
of its own, and so is each table. Data frames, results of several models and bare numbers are none.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from itertools import pairwise

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from ckaudit.contract.io.files import MAX_ITEMS, MAX_PARTS
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import importers
from ckaudit.importers.formats import losslines
from ckaudit.importers.formats.csvfile import epoch_of, imported_records
from ckaudit.importers.importer import Imported, Importer, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.prefix import MAX_LINE

NAME = "Jupyter notebook"
GENERIC = False
MIN_STEPS = 3
"""Steps that make a training: what evaluates a model prints its loss, too, and the head of a table has few rows."""

MAX_LOGS = 2000
"""Texts of several lines, and tables, that are looked at."""

_MARKS = (b'"cells"', b'"nbformat"')
_BOM = b"\xef\xbb\xbf"
_TABLE = "table in HTML"
_TABLE_START = re.compile(r"<table\b", re.IGNORECASE)
_ROW_START = re.compile(r"<tr\b", re.IGNORECASE)
_NOT_LOGGED = "No log"
_LOSSES = ("train_loss_raw", "val_loss")
_OF_A_TRAINING = ("train_loss", "val_loss", "train_ppl", "val_ppl", "microbench_score/")
Text = str | list[str]
Record = dict[str, str]
Columns = Mapping[str, str]


class _Forms(Struct):
    """The forms in which a cell shows one thing, but for images and programs."""

    html: Text = field(default="", name="text/html")


class _Output(Struct):
    """One output of a cell: the text of a stream, something shown in several forms, or an error."""

    output_type: str = ""
    name: str = ""
    text: Text = ""
    data: _Forms = field(default_factory=_Forms)
    ename: str = ""
    evalue: str = ""


class _Cell(Struct):
    """A cell; one of text has no outputs."""

    outputs: list[_Output] = field(default_factory=list)
    execution_count: int | None = None


class _Notebook(Struct):
    """What is read of a notebook."""

    nbformat: int
    cells: list[_Cell]


class _Candidate(Struct, frozen=True):
    """What may be the log of a training.

    Attributes:
        what: Its name in notes: "the printed lines", "the table" or "table 2".
        read: Reads it with the columns that the user named.
    """

    what: str
    read: Callable[[Columns], list[Imported]]


class _Log(Struct, frozen=True):
    """The log of a training.

    Attributes:
        what: Its name in notes.
        runs: Its runs.
        refused: Why it was read without the columns that the user named; None: it has them.
    """

    what: str
    runs: list[Imported]
    refused: UsageError | None


class _CellLogs(Struct, frozen=True):
    """The logs in the outputs of a cell.

    Attributes:
        place: The place of the cell among all cells, from 1.
        count: Its execution count, as Jupyter shows it; None: it has none.
        logs: The logs.
    """

    place: int
    count: int | None
    logs: list[_Log]


_DECODER = Decoder(_Notebook)


def detects(source: Source) -> bool:
    """Tell by the two names that every notebook has, and an output that is the log of a training."""
    head = source.head.removeprefix(_BOM).lstrip()
    if source.is_folder or not head.startswith(b"{") or not any(mark in head for mark in _MARKS):
        return False
    if not all(mark in source.data for mark in _MARKS):
        return False
    try:
        notebook = _notebook(source.data, source.shown)
    except UnreadableError:
        return False
    return next(_found(notebook, source, {}), None) is not None


def read(source: Source, columns: Columns) -> list[Imported]:
    """Read the outputs of each cell.

    Raises:
        UnreadableError: Where the file is no notebook, or no output is the log of a training.
        UsageError: Where `columns` names what is in none of the logs.
    """
    cells = list(_found(_notebook(source.taken_data(), source.shown), source, columns))
    if not cells:
        raise UnreadableError(
            f"{source.shown} is a {NAME}, but no output of its cells is the log of a training: expected printed lines "
            f"or a table with a loss at {MIN_STEPS} steps or more",
            hint="Save it with its outputs, or name the file that the training logged to.",
        )
    refused = [log.refused for cell in cells for log in cell.logs]
    if refused[0] and all(refused):
        raise refused[0]
    return _named(cells)


def _notebook(data: bytes, shown: str) -> _Notebook:
    """Return what is read of a notebook.

    Raises:
        UnreadableError: Where the file is none, or would take a hundred times its size in memory.
    """
    if data.count(b"{") > MAX_PARTS or data.count(b'"') > 2 * MAX_ITEMS:
        raise UnreadableError(f"{shown} holds more than {MAX_PARTS:,} objects or {MAX_ITEMS:,} texts", hint="Clear large outputs.")
    try:
        return _DECODER.decode(data.removeprefix(_BOM))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{shown} is no {NAME} that can be read: expected a JSON document of nbformat 4 with its cells; {error}",
            hint="Save it again in Jupyter, where it opens.",
        ) from None


def _found(notebook: _Notebook, source: Source, columns: Columns) -> Iterator[_CellLogs]:
    """Yield the logs of each cell that has any."""
    seen = 0
    for place, cell in enumerate(notebook.cells, 1):
        groups = [], []
        for candidates, logs in zip((_printed(cell, source), _shown(cell, source)), groups, strict=True):
            pass
        yield _CellLogs(place, cell.execution_count, [])
