"""Fast reading of scalar log lines into columns of float64, several times as fast as a dictionary per line.

Nothing may be lost. A block is refused if a line holds an unknown field, a repeated key, a text among numbers, or anything else
in doubt. It is then read line by line, and its fields are known from then on.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import starmap
from operator import attrgetter
from typing import Any, get_type_hints

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from ckaudit.contract.io.columns import holds_keys
from ckaudit.contract.schema.scalars import ScalarLine, Value, word_of

WORDS = frozenset({"NaN", "Infinity", "-Infinity"})

# JSON numbers are never NaN, so two NaNs with different bits can mark absent and null.
_ABSENT_BITS, _NULL_BITS = 0x7FF8_0000_0000_0AB5, 0x7FF8_0000_0000_0A11
_ABSENT, _NULL = struct.unpack("=dd", struct.pack("=qq", _ABSENT_BITS, _NULL_BITS))
_CELLS: Mapping[Any, float] = {**{word: float(word) for word in WORDS}, None: _NULL}
_NO_SESSION = -1


class LineTable(Struct, frozen=True, eq=False):
    """N lines as columns.

    Attributes:
        steps: Shape (N,).
        sessions: Shape (N,); 0 if a line names none.
        names: Names of the F numbers.
        values: Shape (F, N); NaN if not recorded.
        recorded: Shape (F, N); None: all cells are recorded.
        texts: Words by name, one per line, None if a line has none.
    """

    steps: NDArray[np.int64]
    sessions: NDArray[np.int64]
    names: tuple[str, ...]
    values: NDArray[np.float64]
    recorded: NDArray[np.bool_] | None
    texts: Mapping[str, Sequence[str | None]]


class _Form(Struct, frozen=True):
    """Layout of a line: its decoder, the getter of its numbers, and the names of its numbers and texts."""

    decoder: "msgspec.json.Decoder[list[Any]]"
    cells: Callable[[Any], tuple[Any, ...]]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]


class Tabulator:
    """Reads blocks of lines into tables once it has learnt their fields."""

    def __init__(self, *, sparse: int = 8) -> None:
        """Begin without known fields.

        Args:
            sparse: If lines hold less than one field in this many, reading them one by one is as fast.
        """
        self._sparse = sparse
        self._names: dict[str, bool] = {}  # whether it is text
        self._lines, self._cells, self._versions = 0, 0, 0
        self._form: _Form | None = None

    def learn(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """Learn the fields of lines that were read one by one."""
        before = dict(self._names)
        for row in rows:
            self._lines += 1
            self._cells += len(row)
            self._versions += "schema_version" in row
            for name, value in row.items():
                self._names[name] = self._names.get(name, False) or _is_word(name, value)
        if len(self._names) * self._lines > self._sparse * self._cells:
            self._form = None
        elif self._form is None or self._names != before:
            texts = {name for name, is_text in self._names.items() if is_text}
            if self._versions * self._sparse < self._lines:
                texts -= {"schema_version"}
            numbers = [name for name, is_text in self._names.items() if not is_text and name not in ("step", "session")]
            self._form = _form(tuple(numbers), tuple(sorted(texts)))

    def read(self, body: bytes) -> LineTable | None:
        """Return the lines of `body`, each with its newline, as a table; None if something might be lost."""
        if self._form is None:
            return None
        try:
            rows = self._form.decoder.decode_lines(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return _table(body, rows, self._form) if rows and len(rows) == _count(body, b"\n") else None


def _is_word(name: str, value: Value) -> bool:
    if isinstance(value, bool):
        return word_of(name, value) is not None
    return isinstance(value, str) and value not in WORDS


@cache
def _fixed() -> dict[str, Any]:
    return get_type_hints(ScalarLine, include_extras=True)


@lru_cache(maxsize=64)
def _form(numbers: tuple[str, ...], texts: tuple[str, ...]) -> _Form | None:
    places = [(f"n{index}", name) for index, name in enumerate(numbers)]
    words = [(f"t{index}", name) for index, name in enumerate(texts)]
    members: list[Any] = [("step", _fixed()["step"]), ("session", _fixed()["session"], _NO_SESSION)]
    for place, name in (*places, *words):
        # A boolean among numbers is refused, unless it counts as one.
        value = float | str | None if place[0] == "n" and word_of(name, True) else Value
        members.append((place, _fixed().get(name, value), msgspec.field(name=name, default=_ABSENT)))
    try:
        line = msgspec.defstruct("Line", members, gc=False)
    except ValueError:  # a name that msgspec cannot use as a field
        return None
    cells = attrgetter("step", "session", *(place for place, _ in places)) if texts else astuple
    return _Form(msgspec.json.Decoder(line), cells, numbers, texts)


def _table(body: bytes, rows: list[Any], form: _Form) -> LineTable | None:
    try:
        pack = struct.Struct(f"=qq{len(form.numbers)}d").pack
        try:
            data = b"".join(starmap(pack, map(form.cells, rows)))
        except struct.error:
            data = b"".join(map(partial(_packed_line, pack), map(form.cells, rows)))
        bits = np.frombuffer(data, np.int64).reshape(len(rows), -1).T.copy()  # (2 + F, N)
        texts = {name: _texts(rows, f"t{index}") for index, name in enumerate(form.texts)}
    except (struct.error, TypeError):
        return None
    steps, sessions, numbers = bits[0], bits[1], bits[2:]
    absent = numbers == _ABSENT_BITS
    words = sum(text is not _ABSENT for column in texts.values() for text in column)
    keys = len(rows) + np.count_nonzero(sessions != _NO_SESSION) + numbers.size - np.count_nonzero(absent) + words
    if not holds_keys(body, int(keys), _count(body, b":")):
        return None
    missing = absent | (numbers == _NULL_BITS)
    values = numbers.view(np.float64)
    values[missing] = np.nan
    sessions[sessions == _NO_SESSION] = 0
    words_by_name = {name: [_word(text) for text in column] for name, column in texts.items()}
    words_by_name.pop("schema_version", None)
    return LineTable(steps, sessions, form.numbers, values, ~missing if missing.any() else None, words_by_name)


def _packed_line(pack: Callable[..., bytes], cells: tuple[Any, ...]) -> bytes:
    try:
        return pack(*cells)
    except struct.error:
        return pack(*[cell if cell.__class__ is float else _CELLS.get(cell, cell) for cell in cells])


def _texts(rows: list[Any], place: str) -> list[Any]:
    """Return one field of words.

    Raises:
        TypeError: If it holds a number, or a word for one.
    """
    column = list(map(attrgetter(place), rows))
    if any(text is not _ABSENT and text is not None and (not isinstance(text, str | bool) or text in WORDS) for text in column):
        raise TypeError("a number among texts")
    return column


def _word(text: Any) -> str | None:
    if isinstance(text, bool):
        return str(text).lower()
    return text if isinstance(text, str) else None


def _count(body: bytes, character: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(character)))
