"""Saved Jupyter notebooks, `.ipynb` of nbformat 4: the trainings in the outputs of their cells.

The printed text of a cell is read as a log in any known format. A table shown by the Hugging Face Trainer or fastai is read if
its first column counts steps or epochs and another is a loss. Of a cell with both, the one with more steps counts. Each cell is a
run of its own, and so is each table. Data frames, results of several models and bare numbers are not trainings.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html.parser import HTMLParser
from itertools import groupby, pairwise

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
"""Minimum steps of a training: an evaluation of a model prints its loss, too."""

_LIMITS = {b"{": MAX_PARTS, b'"': 2 * MAX_ITEMS, b'"outputs"': 2000, b"<table": 2000}
_MARKS = (b'"cells"', b'"nbformat"')
_BOM = b"\xef\xbb\xbf"
_TABLE_START = re.compile(r"<table\b")
_ROW_START = re.compile(r"<tr\b")
_NOT_LOGGED = "No log"
_OF_TRAINER = "Training Loss"
_ONCE = "a Training Loss that stands until the next one was logged was taken once: evaluations between them repeat it"
_LOSSES = ("train_loss_raw", "val_loss")
_OF_A_TRAINING = ("train_loss", "val_loss", "train_ppl", "val_ppl", "microbench_score/")
Columns = Mapping[str, str]
Record = dict[str, str]
Text = str | list[str]


class _Forms(Struct):
    """The forms in which a cell shows one object, without images and scripts."""

    html: Text = field(default="", name="text/html")


class _Output(Struct):
    """One output of a cell: the text of a stream, an object shown in several forms, or an error."""

    output_type: str = ""
    name: str = ""
    text: Text = ""
    data: _Forms = field(default_factory=_Forms)
    ename: str = ""
    evalue: str = ""


class _Cell(Struct):
    """A cell; cells other than code have no outputs."""

    outputs: list[_Output] = field(default_factory=list)
    execution_count: int | None = None


class _Notebook(Struct):
    """The members of a notebook that are read."""

    nbformat: int
    cells: list[_Cell]


_DECODER = Decoder(_Notebook)


class _Log(Struct, frozen=True):
    """The log of a training.

    Attributes:
        what: What it is among the outputs of its cell.
        runs: Its runs.
        refused: Why it was read without the columns that the user named; None: it has those columns.
    """

    what: str
    runs: Sequence[Imported]
    refused: UsageError | None


class _CellLogs(Struct, frozen=True):
    """The logs in the outputs of one cell, at least one.

    Attributes:
        place: The position of the cell among all cells, from 1.
        count: Its execution count, which Jupyter shows beside it; None: it has none.
        logs: The logs.
    """

    place: int
    count: int | None
    logs: Sequence[_Log]


def detects(source: Source) -> bool:
    """Tell whether the file has the two names of every notebook, and an output that is a training log."""
    head = source.head.removeprefix(_BOM).lstrip()
    if source.is_folder or not head.startswith(b"{") or not any(mark in head for mark in _MARKS):
        return False
    try:
        return all(mark in source.data for mark in _MARKS) and next(_logs(source, source.data, {}), None) is not None
    except UnreadableError:
        return False


def read(source: Source, columns: Columns) -> list[Imported]:
    """Read the outputs of each cell.

    Raises:
        UnreadableError: Where the file is not a notebook, or no output is a training log.
        UsageError: Where `columns` names something that none of the logs has.
    """
    cells = list(_logs(source, source.taken_data(), columns))
    if not cells:
        raise UnreadableError(
            f"{source.shown} is a {NAME} without a training: expected printed lines or a table among its outputs, "
            f"with a loss at {MIN_STEPS} steps or more",
            hint="Save it with its outputs, or name the file that the training logged to.",
        )
    refused = [log.refused for cell in cells for log in cell.logs]
    if refused[0] and all(refused):
        raise refused[0]
    return _named(cells)


def _logs(source: Source, data: bytes, columns: Columns) -> Iterator[_CellLogs]:
    """Yield the logs of each cell that has any.

    Raises:
        UnreadableError: Where the data are not a notebook.
    """
    cells = [(place, cell) for place, cell in enumerate(_notebook(data, source.shown).cells, 1) if cell.outputs]
    for place, cell in cells:
        shown = [_log("the table", partial(_read_table, table, source), columns) for table in _tables(cell)]
        printed = [_log("the printed lines", partial(_read_lines, source.with_data(_text(cell).encode())), columns)]
        if logs := max(([log for log in logs if log.runs] for logs in (shown, printed)), key=_step_count):
            yield _CellLogs(place, cell.execution_count, logs)


def _notebook(data: bytes, shown: str) -> _Notebook:
    """Return the members of a notebook that are read.

    Raises:
        UnreadableError: Where the data are not a notebook, or hold so many items that they would fill the memory.
    """
    for mark, most in _LIMITS.items():
        if data.count(mark) > most:
            raise UnreadableError(f"{shown} holds {mark.decode()} more than {most:,} times", hint="Clear its large outputs.")
    try:
        return _DECODER.decode(data.removeprefix(_BOM))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{shown} is no {NAME} that can be read: expected a JSON document of nbformat 4; {error}",
            hint="Save it again in Jupyter, or name the file that the training logged to.",
        ) from None


def _log(what: str, reader: Callable[[Columns], Sequence[Imported]], columns: Columns) -> _Log:
    """Read a possible log; if it lacks the columns that the user named, read it without them."""
    refused = None
    try:
        runs = reader(columns)
    except UsageError as error:
        runs, refused = reader({}), error
    return _Log(what, [run for run in runs if _is_training(run)], refused)


def _is_training(run: Imported) -> bool:
    """Tell a training from results of several models, whose rows have no step numbers, and from other output of a cell."""
    is_numbered = run.manifest.step_unit == "entry" and run.source != losslines.NAME
    is_judged = any(name.startswith(_OF_A_TRAINING) for name in run.table.names)
    return len(run.table.steps) >= MIN_STEPS and is_judged and not is_numbered


def _step_count(logs: Sequence[_Log]) -> int:
    return sum(len(run.table.steps) for log in logs for run in log.runs)


def _named(cells: Sequence[_CellLogs]) -> list[Imported]:
    """Return all runs; the first note of each says where it was read, and so does its name if there are several."""
    counts = {cell.count for cell in cells}
    are_counted = None not in counts and len(counts) == len(cells)
    runs = []
    for cell in cells:
        of_cell = f"cell {cell.count if are_counted else cell.place}"
        for number_of_table, log in enumerate(cell.logs, 1):
            part = f"table {number_of_table}" if len(cell.logs) > 1 else ""
            notes = [f"read as {NAME}: {part or log.what} of {of_cell}{'' if are_counted else ', counted from the top'}"]
            notes += [f"{of_cell} was read without --map: {log.refused}"] if log.refused else []
            for run in log.runs:
                name = ": ".join(filter(None, [of_cell if len(cells) > 1 else "", part, run.name]))
                runs.append(replace(run, name=name, notes=(*notes, *run.notes)))
    return runs


def _text(cell: _Cell) -> str:
    """Return the printed text of a cell, and the error that ended it; each stream begins on a new line."""
    parts: list[str] = []
    stream = ""
    for output in cell.outputs:
        is_error = output.output_type == "error"
        text = ": ".join(filter(None, (output.ename, output.evalue))) if is_error else "".join(output.text)
        if parts and output.name != stream and not parts[-1].endswith("\n"):
            parts.append("\n")
        parts += [text] if text else []
        stream = output.name
    return "".join(parts)


def _read_lines(log: Source, columns: Columns) -> Sequence[Imported]:
    """Return the runs in printed text; none where no importer recognizes it as a log."""
    if log.data.count(b"\n") + log.data.count(b"\r") < MIN_STEPS - 1:
        return ()
    try:
        importer = next((each for each in importers() if _reads_outputs(each) and each.detects(log)), None)
        return () if importer is None else importer.read(log, columns)
    except UnreadableError:
        return ()


def _reads_outputs(importer: Importer) -> bool:
    return importer.NAME != NAME and not getattr(importer, "ONLY_BY_NAME", False)


def _read_table(table: Sequence[Record], source: Source, columns: Columns) -> Sequence[Imported]:
    """Return the runs in a table; none where no column holds a value."""
    losses = [record.get(_OF_TRAINER, "") for record in table]
    repeats = _repeats(losses)
    records = [{**record, _OF_TRAINER: ""} if place in repeats else record for place, record in enumerate(table)]
    try:
        return imported_records(records, source, columns, "HTML table", [_ONCE] if repeats else [])
    except UnreadableError:
        return ()


def _repeats(texts: Sequence[str], *, min_values: int = 3) -> set[int]:
    """Return the positions of texts that repeat the previous one, if each text but the last stands at least twice in a row.

    A loss that stagnates does not count, because the texts before it occur once.

    >>> _repeats(["", "2.1", "2.1", "1.4", "1.4", "1.2"]), _repeats(["2.1", "1.4", "0.7", "0.7", "0.7"])
    ({2, 4}, set())
    """
    lengths = [len(list(group)) for text, group in groupby(texts) if text]
    if len(lengths) < min_values or min(lengths[:-1]) == 1:
        return set()
    return {place for place, (before, text) in enumerate(pairwise(texts), 1) if text and text == before}


def _tables(cell: _Cell) -> Iterator[list[Record]]:
    """Yield the rows of each training table that a cell shows, as values by column."""
    for output in cell.outputs:
        for table in _TABLE_START.split("".join(output.data.html))[1:]:
            rows = (_cells(row) for row in _ROW_START.split(table.partition("</table")[0])[1:])
            header = next(filter(None, rows), [])
            if not _names_losses(header):
                continue
            records = [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]
            counts = [count for record in records if (count := number(record[header[0]])) is not None]
            if len(set(counts)) >= MIN_STEPS and len(counts) == len(records) and counts == sorted(counts):
                yield records


def _names_losses(header: Sequence[str]) -> bool:
    """Tell whether a header has a count of steps or epochs first, and a loss; a data frame begins with its index."""
    is_count = epoch_of(header[:1]) == 0 or (bool(header) and catalogue_name(header[0]) == "step")
    return is_count and any(catalogue_name(name) in _LOSSES for name in header)


def _cells(row: str) -> list[str]:
    """Return the texts of the cells of a row, empty where nothing was logged yet."""
    reader = _RowReader()
    try:
        reader.feed(f"<tr{row[:MAX_LINE]}")
    except (AssertionError, ValueError):  # an unknown kind of declaration, a character reference with thousands of digits
        return []
    texts = [" ".join(text.replace('"', "'").split()) for text in reader.cells]
    return ["" if text == _NOT_LOGGED else text for text in texts]


class _RowReader(HTMLParser):
    """Collects the cells of a row; it is not closed, because `close` takes quadratic time on a tag that never ends.

    Attributes:
        cells: Their texts.
    """

    def __init__(self) -> None:
        """Start without a cell."""
        super().__init__()
        self.cells: list[str] = []
        self._is_inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002  as its base has it
        """Start a cell at its opening tag."""
        if tag in ("td", "th"):
            self.cells.append("")
            self._is_inside = True

    def handle_endtag(self, tag: str) -> None:
        """End a cell at its closing tag."""
        self._is_inside &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        """Append text to the current cell."""
        if self._is_inside:
            self.cells[-1] += data
