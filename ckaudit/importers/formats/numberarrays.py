"""Unnamed numbers in a text or in NumPy arrays: `train_loss.txt`, `losses.json`, `losses.csv` without a header, `history.npz`.

Arrays of an archive have their names there. Where nothing in a file names its numbers, the file name has to be that of a loss. A
list, numbers one per line and an array are one series of it. In rows of several numbers, counters are not losses, and the first
other column is the loss that the file is named after. The numbers are read as the columns of a CSV file.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.errors import UnreadableError
from ckaudit.importers.formats import csvfile
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import RETURN, SHORT_NAMES, catalogue_name, list_names, may_be_a_reward, recognise_columns, writable
from ckaudit.importers.tables.headerless_numbers import (
    MIN_NUMBERS,
    HeaderlessColumns,
    header_of,
    is_list,
    read_lines,
    read_list,
    read_rows,
    row_width,
)
from ckaudit.importers.tables.headerless_rows import ColumnRoles, roles_of
from ckaudit.importers.tables.loss_file_names import is_of_rewards, loss_named_by_file, names_a_training_log
from ckaudit.importers.tables.numbers import Numbers, recorded_in_full
from ckaudit.importers.tables.numpy_arrays import ARCHIVE, ARRAY, WRITE_CSV, array_of, names_of_arrays, unpacked
from ckaudit.importers.tables.table import NumberTable
from ckaudit.importers.tables.table_header import text_of
from ckaudit.importers.text.log import is_text

NAME = "arrays of numbers"
GENERIC = True
COUNTED = "nothing names a step: its numbers were counted from 1; how many updates lie between two of them is not known"

_LOSSES = {"train_loss_raw", "val_loss"}
_JUDGED = {*_LOSSES, RETURN}
_OF_ANY_DATA = frozenset({"loss", "losses"})
_NEUTRAL = frozenset({"0", "value", "values", "data", "y", "number", "numbers"})
"""Headers of a single column without meaning."""


def detects(source: Source) -> bool:
    """Tell whether an array is named as a loss, or numbers without names have a header or a file name that is."""
    if source.is_folder:
        return False
    if source.head.startswith(ARCHIVE):
        return any(map(loss_name_of_file, names_of_arrays(source.data)))
    if source.head.startswith(ARRAY):
        return bool(loss_name_of_file(source.path.name))
    return is_text(source) and _is_named_text(source)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the numbers; arrays that are not as long as the longest loss array are left out, with a note.

    Raises:
        UnreadableError: Where there are no readable numbers, or nothing says which of them are a loss.
        UsageError: Where `columns` names something that does not exist.
    """
    if source.head.startswith(ARCHIVE):
        return _archived(source, columns)
    if source.head.startswith(ARRAY):
        array = array_of(source.data, source.shown)
        headerless = HeaderlessColumns([recorded_in_full(array)] if array.ndim == 1 else [], range(1, array.size + 1))
    else:
        headerless = _text_columns(source)
    if not headerless.columns or headerless.columns[0].count < MIN_NUMBERS:
        raise UnreadableError(f"{source.shown} holds no row of numbers", hint=WRITE_CSV)
    return _single_series(source, headerless, columns) if len(headerless.columns) == 1 else _rows(source, headerless, columns)


def loss_name_of_file(name: str) -> str:
    """Return the name of the loss that a file name stands for, empty where it is not the name of a loss.

    >>> loss_name_of_file("train_losses.npy"), loss_name_of_file("run3-val-loss.txt"), loss_name_of_file("weights.npy")
    ('train_loss', 'val_loss', '')
    """
    named = loss_named_by_file(name)
    return named.column if named else ""


def _is_named_text(source: Source) -> bool:
    """Tell whether a text holds only numbers, and its header or its file name says what they are."""
    lines, file_name = _whole_lines(source.head), source.path.name
    if (header := header_of(lines)) is not None:
        return bool(_loss_name(header, file_name))
    is_of_loss = loss_named_by_file(file_name) is not None or is_of_rewards(file_name)
    if is_of_loss and is_list(text_of(source.head)):
        return True
    return (is_of_loss or names_a_training_log(file_name)) and row_width(lines) > 0


def _loss_name(header: str, file_name: str) -> str:
    """Return the loss name of a single column: its header if that is a loss, else the name from the file name; or ""."""
    of_file = RETURN if is_of_rewards(file_name) else loss_name_of_file(file_name)
    if _is_return(header):
        return RETURN
    if header.lower() in {"", *_NEUTRAL} or (header.lower() in _OF_ANY_DATA and "val_loss" in recognise_columns([of_file])):
        return of_file
    return header if _LOSSES & recognise_columns([header]).keys() else ""


def _is_return(header: str) -> bool:
    """Tell whether the header of a single column is a reward; nothing else could be meant by a column of rewards alone."""
    name = (catalogue_name(header) or "").partition("/")[2]
    return may_be_a_reward(header) or EPISODE_RETURN.search(name) is not None


def _whole_lines(head: bytes) -> list[str]:
    """Return the first lines of a text; a last line that may be incomplete is left out if there are enough others."""
    lines = text_of(head).splitlines()
    is_torn = not head.endswith((b"\n", b"\r")) and len(lines) > MIN_NUMBERS
    return lines[:-1] if is_torn else lines


def _text_columns(source: Source) -> HeaderlessColumns:
    lines = _whole_lines(source.head)
    if (header := header_of(lines)) is not None:
        return read_lines(source.text, header, source.shown)
    if is_list(text_of(source.head)):
        return read_list(source.text, source.shown)
    return read_rows(source.text, width, source.shown) if (width := row_width(lines)) else HeaderlessColumns([], [])


def _archived(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the arrays of an archive."""
    packed = unpacked(source.data, source.shown)
    arrays = {name: array for name, array in packed.items() if array.ndim == 1 and len(array) >= MIN_NUMBERS}
    if not arrays:
        raise UnreadableError(f"{source.shown} holds no row of numbers", hint=WRITE_CSV)
    of_losses = {name: array for name, array in arrays.items() if loss_name_of_file(name) or name in columns.values()}
    longest = max(map(len, (of_losses or arrays).values()))
    others = [name for name, array in arrays.items() if len(array) != longest]
    notes = [f"of another length, and left out: {list_names(others)}"] if others else []
    taken = {name: recorded_in_full(array) for name, array in arrays.items() if len(array) == longest}
    if len(taken) == 1:
        ((name, only),) = taken.items()
        return _counted(source, name, HeaderlessColumns([only], range(1, longest + 1), notes), columns)
    return _imported(source, taken, HeaderlessColumns([], range(1, longest + 1), notes), columns)


def _single_series(source: Source, headerless: HeaderlessColumns, columns: Mapping[str, str]) -> list[Imported]:
    file_name = source.path.name
    column = _loss_name(headerless.header, file_name) or headerless.header or writable(file_name.partition(".")[0])
    return _counted(source, column, headerless, columns)


def _counted(source: Source, name: str, headerless: HeaderlessColumns, columns: Mapping[str, str]) -> list[Imported]:
    """Read one series whose numbers are counted from 1."""
    runs = _imported(source, {name: headerless.columns[0]}, headerless, columns)
    return [replace(run, notes=tuple(COUNTED if note == csvfile.NUMBERED else note for note in run.notes)) for run in runs]


def _rows(source: Source, headerless: HeaderlessColumns, columns: Mapping[str, str]) -> list[Imported]:
    """Read rows of several numbers, each column by its position."""
    mapped = {SHORT_NAMES.get(name, name) for name in columns}
    roles = roles_of(headerless.columns, source.path.name)
    taken = {name: column for name, column in roles.taken.items() if name not in mapped and column not in columns.values()}
    if not _JUDGED & {*taken, *mapped}:
        raise _unnamed(source.shown, roles)
    named = dict(zip(roles.names, headerless.columns, strict=True))
    told = f"{roles.note}{'' if _LOSSES & mapped else roles.offer}"
    notes = [*headerless.notes, *([told] if _JUDGED & taken.keys() else [])]
    return _imported(source, named, replace(headerless, notes=notes), {**taken, **columns})


def _unnamed(shown: str, roles: ColumnRoles) -> UnreadableError:
    """Return the error for a file in which nothing says which column is a loss."""
    counters = [name for name in roles.names if name not in roles.measured]
    counting = f"; {list_names(counters)} {'counts' if len(counters) == 1 else 'count'}" if counters else ""
    place = (roles.measured or roles.names[-1:])[0]
    return UnreadableError(
        f"{shown} holds rows of {len(roles.names)} numbers, and nothing names them{counting}",
        hint=f"--map 'loss={place}' would take {place} for the training loss.",
    )


def _imported(
    source: Source, named: Mapping[str, Numbers], headerless: HeaderlessColumns, columns: Mapping[str, str]
) -> list[Imported]:
    """Return the runs in named columns."""
    header: Sequence[str] = tuple(named)
    choices = csvfile.choices_of(header, columns, source.shown)
    wanted = {position: named[header[position]] for position in csvfile.columns_to_read(header, choices)}
    table = NumberTable(header, wanted, headerless.lines, "", headerless.notes)
    return csvfile.imported_runs(table, {}, choices, source.shown, NAME)
