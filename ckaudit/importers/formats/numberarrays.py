"""Numbers alone: a text of one to a line, or arrays of NumPy, `train_loss.txt`, `losses.npy`, `history.npz`.

Arrays of an archive go by their names. A file of one array has none, so its own name has to be that of a loss. What is there is
read as the columns of a CSV file.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from itertools import islice

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ckaudit.contract.io.folder import shown_name
from ckaudit.errors import UnreadableError
from ckaudit.importers.formats import csvfile
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name, list_names, writable
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.log import is_text

NAME = "arrays of numbers"
GENERIC = True
MIN_NUMBERS = 5
MAX_BYTES = 2**28
"""Of arrays that are packed: what their archive says they take."""

COUNTED = "nothing names a step: its numbers were counted from 1; how many updates lie between two of them is not known"
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError, EOFError, OSError)
"""What reading a broken archive may raise: RuntimeError where it is encrypted."""

_ARRAY = b"\x93NUMPY"
_ARCHIVE = b"PK\x03\x04"
_LOSSES = ("train_loss_raw", "val_loss")
_BLANK = re.compile(r"[\s_.-]+")
Columns = dict[str, NDArray[np.float64]]


def detects(source: Source) -> bool:
    """Tell by arrays, one of them with the name of a loss, or by lines of numbers in a file of such a name."""
    if source.is_folder:
        return False
    if source.head.startswith(_ARCHIVE):
        return any(name_of_file(name) for name in _members(source.data))
    if not name_of_file(source.path.name):
        return False
    return source.head.startswith(_ARRAY) or (is_text(source) and _are_numbers(source.head))


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the arrays; those that are not as long as the longest of a loss are left out, with a note.

    Raises:
        UnreadableError: Where there is none that can be read.
        UsageError: Where `columns` names what is not there.
    """
    arrays = {name: array for name, array in _arrays(source).items() if array.ndim == 1 and len(array) >= MIN_NUMBERS}
    if not arrays:
        raise UnreadableError(
            f"{source.shown} holds no row of numbers", hint="Write its series to a CSV file with a header line."
        )
    of_losses = {name: array for name, array in arrays.items() if name_of_file(name) or name in columns.values()}
    longest = max(map(len, (of_losses or arrays).values()))
    others = [name for name, array in arrays.items() if len(array) != longest]
    notes = [f"of another length, and left out: {list_names(others)}"] if others else []
    whole = {name: array for name, array in arrays.items() if len(array) == longest}
    is_alone = len(whole) == 1
    if is_alone:  # a table has two columns at least
        whole = {"step": np.arange(1.0, longest + 1), **whole}
        notes.append(COUNTED)
    text = io.StringIO()
    text.write("\t".join(whole) + "\n")
    np.savetxt(text, np.column_stack([*whole.values()]), fmt="%.17g", delimiter="\t")
    table, labels = csvfile.labelled_table(source.with_data(text.getvalue().encode()), columns)
    choices = csvfile.choices_of(table.header, columns, source.shown)
    runs = csvfile.imported_runs(replace(table, delimiter=""), labels, choices, source.shown, NAME)
    return [replace(run, notes=(*run.notes, *notes)) for run in runs]


def name_of_file(name: str) -> str:
    """Return the name of a loss that a file's name is, empty where it is none.

    >>> name_of_file("train_losses.npy"), name_of_file("run3-val-loss.txt"), name_of_file("weights.npy")
    ('train_losses', 'val_loss', '')
    """
    words = _BLANK.sub(" ", name.partition(".")[0].lower()).split()
    ends = ("_".join(words[begin:]) for begin in range(len(words)))
    return next((end for end in ends if catalogue_name(end) in _LOSSES), "")


def _are_numbers(head: bytes) -> bool:
    lines = [line for line in head.decode("utf-8", errors="replace").splitlines()[:-1] if line.strip()]
    return len(lines) >= MIN_NUMBERS and all(number(line) is not None for line in islice(lines, 50))


def _arrays(source: Source) -> Columns:
    """Return the arrays by name.

    Raises:
        UnreadableError: Where one is no array of numbers, or takes more than there is.
    """
    if source.head.startswith(_ARCHIVE):
        return _unpacked(source)
    name = name_of_file(source.path.name) or writable(source.path.name.partition(".")[0])
    if source.head.startswith(_ARRAY):
        return {name: _array(source.data, source.shown)}
    values = [number(line) for line in source.text.splitlines() if line.strip()]
    return {name: np.array([np.nan if value is None else value for value in values], np.float64)}


def _unpacked(source: Source) -> Columns:
    try:
        with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise UnreadableError(
                    f"{source.shown} holds more than {MAX_BYTES:,} bytes of arrays", hint="Write its series to a CSV file."
                )
            packed = {name: archive.read(name) for name in archive.namelist() if name.endswith(".npy")}
    except BROKEN_ARCHIVE as error:
        raise UnreadableError(f"{source.shown} is no archive that can be read: {error}", hint="Fetch it again.") from None
    return {
        writable(name.removesuffix(".npy")): _array(data, f"{shown_name(name)} of {source.shown}")
        for name, data in packed.items()
    }


def _members(data: bytes) -> list[str]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [name for name in archive.namelist() if name.endswith(".npy")]
    except BROKEN_ARCHIVE:
        return []


def _array(data: bytes, shown: str) -> NDArray[np.float64]:
    """Return an array of NumPy's own format, of which nothing is run.

    Raises:
        UnreadableError: Where it holds no numbers, or its header says more of them than there are bytes.
    """
    hint = "Write its series to a CSV file with a header line."
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = header(stream)
        size = int(np.prod(shape, dtype=np.float64))
        if kind.hasobject or kind.kind not in "fiub":
            raise UnreadableError(f"{shown} holds no numbers", hint=hint)
        if size * kind.itemsize > len(data) - stream.tell():
            raise UnreadableError(f"{shown} is cut off: its header says {size:,} numbers", hint="Fetch it again.")
        return np.frombuffer(data, kind, size, stream.tell()).reshape(-1 if len(shape) == 1 else shape).astype(np.float64)
    except (ValueError, EOFError, TypeError) as error:
        raise UnreadableError(f"{shown} is no array that can be read: {error}", hint=hint) from None
