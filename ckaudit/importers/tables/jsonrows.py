"""JSON objects, one per line, as columns; truncated lines, bare NaN and nested members are accepted."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ckaudit.contract.io.codec import BOM, quote_bare_words, quote_everywhere
from ckaudit.errors import UnreadableError
from ckaudit.importers.tables.long_form import LabelColumn, split_columns, split_note
from ckaudit.importers.tables.numbers import Numbers, numbers, unrecorded_column

BLOCK_BYTES = 4 * 2**20
MAX_CELLS = 40_000_000  # 320 MB of numbers
MAX_KEYS = 50_000
MAX_DEPTH = 8
STATISTICS = {"num", "mean", "std"}  # as StyleGAN logs what it collects
SAMPLE_LINES = 200
EXPERT_LOADS = re.compile(
    r"(?:expert|router)s?_?(?:loads?|usage|util\w*|counts?|tokens|shares?|fractions?|probs?|distribution)|(?:tokens|load)_per_expert",
    re.IGNORECASE,
)
"""Names of lists that hold the number or share of tokens for each expert."""

SPREAD = "moe_util_entropy"
Object = dict[str, Any]

_DECODER = msgspec.json.Decoder()


class JsonRows(Struct, frozen=True):
    """The objects of a log.

    Attributes:
        keys: All keys, nested ones joined by slashes, in the order of their first appearance.
        columns: Numbers of the wanted keys, with a cell for each object.
        texts: Cells of the keys whose text was asked for, None where an object has none.
        lines: Line of each object in the file, from 1.
        notes: Lines that could not be read.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, Numbers]
    texts: Mapping[str, list[Any]]
    lines: Sequence[int]
    notes: list[str]

    @property
    def size_text(self) -> str:
        """The number of entries, in a few words."""
        return f"{len(self.lines):,} entries"

    def column(self, key: str) -> Numbers:
        """Return a column, or one without any number where no object has the key."""
        return self.columns.get(key) or unrecorded_column(len(self.lines))

    def at(self, places: NDArray[np.int64]) -> "JsonRows":
        """Return the objects at `places`."""
        columns = {key: column.at(places) for key, column in self.columns.items()}
        texts = {key: [cells[place] for place in places] for key, cells in self.texts.items()}
        return JsonRows(self.keys, columns, texts, [self.lines[place] for place in places], self.notes)

    def with_split_columns(self, name: str, split: LabelColumn) -> "JsonRows":
        """Return the objects with separate columns for values that do not belong to the training data."""
        columns = split_columns(self.columns, split)
        keys = tuple(dict.fromkeys([*self.keys, *columns]))
        return JsonRows(keys, columns, self.texts, self.lines, [split_note(name, split), *self.notes])


class _NoObjects(Struct):
    """Lines that hold no object."""

    broken: int = 0
    first: int = 0
    torn: bool = False
    crowded: bool = False

    def add(self, line: int) -> None:
        self.broken += 1
        self.first = self.first or line

    def notes(self) -> list[str]:
        notes = []
        if self.broken:
            notes.append(f"{self.broken:,} lines hold no JSON object and were left out, first line {self.first:,}")
        if self.torn:
            notes.append("the last line was only half written and was left out")
        if self.crowded:
            notes.append(f"entries have more than {MAX_KEYS:,} different names: later ones were left out")
        return notes


@lru_cache(maxsize=8)
def sample(head: bytes) -> list[Object]:
    """Return the objects in the first bytes of a file, one per line, flattened; none where it begins with anything else.

    Its first line may be truncated, or two lines may be fused, if the others are whole.
    """
    lines = [line for line in head.removeprefix(BOM).split(b"\n")[:SAMPLE_LINES] if line.strip()]
    if not lines or not lines[0].lstrip().startswith(b"{"):
        return []
    is_whole = _object(lines[0]) is not None
    rows = [flat(row) for line in lines if line.startswith(b"{") and (row := _object(line)) is not None]
    return rows if is_whole or len(rows) > 1 else []


def read_rows(data: bytes, shown: str, wanted: Callable[[str], bool], *, texts: Collection[str] = ()) -> JsonRows:
    """Read the wanted members of all objects.

    Args:
        data: The whole file.
        shown: Its name in messages.
        wanted: Tells whether the numbers of a key are wanted.
        texts: Keys whose cells are kept unchanged.

    Raises:
        UnreadableError: Where no line holds an object, or the wanted numbers do not fit in memory.
    """
    columns, odd, lines = _Columns(wanted, frozenset(texts)), _NoObjects(), list[Sequence[int]]()
    for block, first in _blocks(data.removeprefix(BOM).rstrip(b"\0")):
        rows, where = _objects(block, first, odd)
        if rows:
            lines.append(where)
            columns.add(rows, nested=block.count(b"{") > len(rows), shown=shown)
    if not columns.count:
        raise UnreadableError(f"{shown} has no line with a JSON object", hint="Look whether the job wrote anything yet.")
    odd.crowded = len(columns.keys) > MAX_KEYS
    places = lines[0] if len(lines) == 1 else [line for part in lines for line in part]
    spread = [f"{SPREAD} was computed from the lists in {columns.loads}"] if columns.loads else []
    return JsonRows(tuple(columns.keys), columns.columns(), columns.words(), places, [*odd.notes(), *spread])


def _blocks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines, a few megabytes at a time, and the number of the first line."""
    start, line = 0, 1
    while start < len(data):
        end = start + BLOCK_BYTES
        end = (data.rfind(b"\n", start, end) + 1) or (data.find(b"\n", end) + 1) or len(data) if end < len(data) else len(data)
        block = data[start:end]
        yield block, line
        start, line = end, line + block.count(b"\n")


def _objects(block: bytes, first: int, odd: _NoObjects) -> tuple[list[Object], Sequence[int]]:
    """Return the objects of whole lines and their line numbers: all at once if each line is an object, else line by line."""
    count = block.count(b"\n") + (not block.endswith(b"\n"))
    for text in (block, None):
        try:
            rows = _DECODER.decode_lines(quote_everywhere(block)[0] if text is None else text)
        except (ValueError, RecursionError):
            continue
        if len(rows) == count and set(map(type, rows)) == {dict}:
            return rows, range(first, first + count)
    return _objects_one_by_one(block, first, odd)


def _objects_one_by_one(block: bytes, first: int, odd: _NoObjects) -> tuple[list[Object], Sequence[int]]:
    rows: list[Object] = []
    places: list[int] = []
    *whole, tail = block.split(b"\n")
    for number, line in enumerate([*whole, tail], first):
        if not line.strip():
            continue
        row = _object(line)
        if row is not None:
            rows.append(row)
            places.append(number)
        elif line is tail:
            odd.torn = True
        else:
            odd.add(number)
    return rows, places


def _object(line: bytes) -> Object | None:
    """Return the object of a line, or None where there is none; Python's own parser accepts lone surrogates."""
    for decode in (_DECODER.decode, _with_standard_library, _with_words_quoted):
        try:
            row = decode(line)
        except (ValueError, RecursionError):
            continue
        return row if isinstance(row, dict) else None
    return None


def _with_standard_library(line: bytes) -> Any:
    import json

    return json.loads(line)


def _with_words_quoted(line: bytes) -> Any:
    return _DECODER.decode(quote_bare_words(line)[0])


def flat(row: Object) -> Object:
    """Return an object with nested members at the top level, their names joined by slashes; statistics become their mean.

    >>> flat({"Loss/G/loss": {"num": 4096, "mean": 1.2, "std": 0.4}})
    {'Loss/G/loss': 1.2}
    >>> flat({"step": 1, "metrics": {"train": {"loss": 2.0}}})
    {'step': 1, 'metrics/train/loss': 2.0}
    """
    return dict(_members(row, "", 0)) if any(value.__class__ is dict for value in row.values()) else row


def _members(row: Object, before: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if value.__class__ is dict and value.keys() == STATISTICS:
            yield before + name, value["mean"]
        elif value.__class__ is dict and depth < MAX_DEPTH:
            yield from _members(value, f"{before}{name}/", depth + 1)
        else:
            yield before + name, value


def load_spread(loads: Any) -> float | None:
    """Return the entropy of the distribution of tokens over experts, relative to an even one; the least of several layers.

    >>> load_spread([5, 5]), load_spread([1.0, 0.0, 0.0]), load_spread([[1, 1], [4, 0]]), load_spread(["a", 1])
    (1.0, 0.0, 0.0, None)
    """
    if not isinstance(loads, list) or len(loads) < 2:
        return None
    if all(isinstance(layer, list) for layer in loads):
        spreads = [load_spread(layer) for layer in loads if not any(isinstance(load, list) for load in layer)]
        return min((spread for spread in spreads if spread is not None), default=None)
    if not all(isinstance(load, int | float) and 0 <= load < math.inf for load in loads):
        return None
    total = sum(loads)
    if not 0 < total < math.inf:
        return None
    shares = [float(load / total) for load in loads]
    return abs(sum(share * math.log(share) for share in shares if share)) / math.log(len(loads))


def _cells(rows: list[Object], key: str) -> list[Any]:
    """Return the values of a key, None where an object has none; `itemgetter` is faster where all objects have it."""
    try:
        return list(map(itemgetter(key), rows))
    except KeyError:
        return [row.get(key) for row in rows]


class _Columns(Struct):
    """Columns that grow block by block."""

    wanted: Callable[[str], bool]
    texts: frozenset[str]
    keys: dict[str, bool] = field(default_factory=dict)  # all keys seen, and whether their numbers are wanted
    parts: dict[str, list[tuple[int, Numbers]]] = field(default_factory=dict)
    text_parts: dict[str, list[tuple[int, list[Any]]]] = field(default_factory=dict)
    count: int = 0
    loads: str = ""  # the key of the lists of tokens per expert

    def add(self, rows: list[Object], *, nested: bool, shown: str) -> None:
        """Add a block of objects.

        Raises:
            UnreadableError: Where the wanted cells do not fit in memory.
        """
        if nested:
            rows = list(map(flat, rows))
        names = set[str]().union(*rows)
        names |= self._add_spread(rows, names)
        if not names <= self.keys.keys():
            for row in rows:
                for member in row:
                    if member not in self.keys and len(self.keys) <= MAX_KEYS:
                        self.keys[member] = self.wanted(member)
        for key in names & self.keys.keys():
            if self.keys[key]:
                self.parts.setdefault(key, []).append((self.count, numbers(_cells(rows, key))))
            if key in self.texts:
                self.text_parts.setdefault(key, []).append((self.count, _cells(rows, key)))
        self.count += len(rows)
        if len(self.parts) * self.count > MAX_CELLS:
            raise UnreadableError(
                f"{shown} holds {len(self.parts):,} series of {self.count:,} entries, more than fit in memory",
                hint="Split the log, or keep the series that matter.",
            )

    def _add_spread(self, rows: list[Object], names: set[str]) -> set[str]:
        """Add the spread of tokens over experts to the objects, where a list gives it; return the name that was added."""
        key = next((name for name in sorted(names) if EXPERT_LOADS.search(name)), "")
        if not key or SPREAD in names:
            return set()
        spreads = [load_spread(row.get(key)) for row in rows]
        if not any(spread is not None for spread in spreads):
            return set()
        for row, spread in zip(rows, spreads, strict=True):
            row[SPREAD] = spread
        self.loads = key
        return {SPREAD}

    def columns(self) -> dict[str, Numbers]:
        """Return all columns at full length, in the order of keys."""
        return {key: self._joined(self.parts[key]) for key in self.keys if key in self.parts}

    def _joined(self, parts: list[tuple[int, Numbers]]) -> Numbers:
        if len(parts) == 1 and len(parts[0][1].values) == self.count:
            return parts[0][1]
        whole = unrecorded_column(self.count)
        for start, part in parts:
            whole.values[start : start + len(part.values)] = part.values
            whole.recorded[start : start + len(part.values)] = part.recorded
        return whole

    def words(self) -> dict[str, list[Any]]:
        """Return all columns of text at full length."""
        words: dict[str, list[Any]] = {}
        for key, parts in self.text_parts.items():
            words[key] = [None] * self.count
            for start, part in parts:
                words[key][start : start + len(part)] = part
        return words
