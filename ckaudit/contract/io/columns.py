"""A section of a checkpoint turned from rows to columns.

Checks and series look at one field of every tensor at once. Turning a section around once, in C, makes both cheap, and
the number of keys found tells whether its text held more than the contract knows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import astuple

from ckaudit.contract.schema.checkpoint import BinRange, Histogram, PackedGrid

Column = tuple[Any, ...]

_NUMBERS = (float, int, bool)
_GRIDS = ("sampled_grid_32x32", "sampled_qk_grid_32x32", "sampled_qk_grid_32x32_per_head")


class SectionColumns(Struct, frozen=True):
    """One section: `columns[field][i]` is the field of tensor `names[i]`, UNSET where it was not recorded.

    Fields that no tensor recorded have no column.

    Attributes:
        names: Tensors or layers, in the order of the file.
        columns: The recorded fields.
        complete: Fields that every tensor recorded.
        plain: Complete fields that hold nothing but finite numbers.
        keys: Object keys that the JSON text of the section holds.
    """

    names: tuple[str, ...]
    columns: dict[str, Column] = field(default_factory=dict)
    complete: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    keys: int = 0

    def complete_columns(self, *fields: str) -> list[Column] | None:
        """Return the columns of `fields` if every tensor recorded every one of them, else None."""
        return [self.columns[name] for name in fields] if self.complete.issuperset(fields) else None

    def numbers(self, name: str, default: float) -> Sequence[float]:
        """Return a number per tensor: `default` where the field is not recorded or not finite."""
        if name in self.plain:
            return self.columns[name]
        if name not in self.columns:
            return [default] * len(self.names)
        return [value if type(value) in _NUMBERS else default for value in self.columns[name]]

    def recorded(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield name and value of each tensor that recorded the field, words for non-finite values included."""
        if name in self.columns:
            yield from ((row, value) for row, value in zip(self.names, self.columns[name], strict=True) if value is not UNSET)

    def rows(self, *fields: str) -> Iterable[tuple[Any, ...]]:
        """Return (name, value, ...) of each tensor that recorded all `fields`, none of them as a word."""
        if not all(name in self.columns for name in fields):
            return ()
        rows = zip(self.names, *(self.columns[name] for name in fields), strict=True)
        if all(name in self.plain or (name in self.complete and type(self.columns[name][0]) is list) for name in fields):
            return rows
        return (row for row in rows if not any(type(value) in (UnsetType, str) for value in row[1:]))

    def colons_in_text(self) -> int:
        """Return how many colons stand inside the names and the text of the section, written without escapes."""
        texts = [column for column in self.columns.values() if type(column[0]) in (str, UnsetType)]
        return "".join(self.names).count(":") + sum(map(colons_in, texts))


EMPTY = SectionColumns(())


def colons_in(column: Column) -> int:
    """Return how many colons stand inside the texts of a column."""
    return sum(value.count(":") for value in column if type(value) is str)


def table(section: Mapping[str, Struct]) -> SectionColumns:
    """Turn a section around.

    >>> from ckaudit.contract.schema.checkpoint import DeltaStats
    >>> table({"a": DeltaStats(norm=1.0), "b": DeltaStats(norm=2.0)}).columns
    {'norm': (1.0, 2.0)}
    """
    if not section:
        return EMPTY
    rows = list(map(astuple, section.values()))
    fields = next(iter(section.values())).__struct_fields__
    columns, complete, plain = {}, set(), set()
    keys = size = len(rows)
    for name, column in zip(fields, zip(*rows, strict=True), strict=True):
        first = type(column[0])
        if first in _NUMBERS and _adds_up(column):
            columns[name] = column
            complete.add(name)
            plain.add(name)
            keys += size
        elif present := size - column.count(UNSET):
            columns[name] = column
            keys += present + keys_inside(name, column)
            if present == size:
                complete.add(name)
    return SectionColumns(tuple(section), columns, frozenset(complete), frozenset(plain), keys)


def columns_of(section: Mapping[str, Struct]) -> dict[str, Column]:
    """Return the fields of a section that any of its members has, a column each: all of `table` that reading needs.

    >>> from ckaudit.contract.schema.checkpoint import DeltaStats
    >>> columns_of({"a": DeltaStats(norm=1.0), "b": DeltaStats(norm=2.0)})
    {'norm': (1.0, 2.0)}
    """
    if not section:
        return {}
    fields = next(iter(section.values())).__struct_fields__
    turned = zip(fields, zip(*map(astuple, section.values()), strict=True), strict=True)
    return {name: column for name, column in turned if column[0] is not UNSET or column.count(UNSET) < len(column)}


def _adds_up(column: Column) -> bool:
    """Tell whether a column holds numbers only: the quickest proof is that they have a sum."""
    try:
        sum(column)
    except TypeError:
        return False
    return True


_BINS = attrgetter("bins")


def keys_inside(name: str, column: Column) -> int:
    """Return how many object keys the histograms and grids of a column hold."""
    if name == "histogram":
        present = [value for value in column if value is not UNSET]
        ranges = list(map(type, map(_BINS, present))).count(BinRange)
        return len(Histogram.__struct_fields__) * len(present) + len(BinRange.__struct_fields__) * ranges
    return sum(map(_grid_keys, column)) if name in _GRIDS else 0


def _grid_keys(grid: Any) -> int:
    """Return how many object keys a grid, or a list of grids, holds: only packed ones are objects."""
    if type(grid) is PackedGrid:
        return len(PackedGrid.__struct_fields__)
    return len(PackedGrid.__struct_fields__) * list(map(type, grid)).count(PackedGrid) if type(grid) is list else 0


def holds_keys(text: bytes, keys: int, colons: int) -> bool:
    """Tell whether `text` with so many colons surely holds no more than `keys` keys: of two equal ones a decoder keeps one."""
    # Every common writer puts a key's colon right after its quote; inside a string that quote would be escaped.
    return colons == keys or text.count(b'":') - text.count(b'\\":') == keys


def count_colons(value: Any) -> int:
    """Return how many colons the JSON text of `value` holds, written without escapes. It never recurses, however deep.

    >>> count_colons({"a": [{"b": 1}, {"c": 2}], "d": "md5:00"})
    5
    """
    colons, todo = 0, [value]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            colons += part.count(":")
        elif isinstance(part, list):
            todo += [item for item in part if type(item) is not float]
        elif isinstance(part, dict):
            colons += len(part) + sum(key.count(":") for key in part)
            todo += part.values()
        elif isinstance(part, Struct):
            present = [item for item in astuple(part) if item is not UNSET]
            colons += len(present)
            todo += present
    return colons
