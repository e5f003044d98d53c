"""A section of a checkpoint transposed from rows to columns.

Checks and series read one field of every tensor at once. Transposing a section once, in C, makes both cheap, and the number of
keys found shows whether its text held more than the contract knows.
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
    """One section: `columns[field][i]` is the field of tensor `names[i]`, UNSET if it is not recorded.

    Fields that no tensor records have no column.

    Attributes:
        names: Tensors or layers, in the order of the file.
        columns: The recorded fields.
        complete: Fields that every tensor records.
        plain: Complete fields that hold only finite numbers.
        keys: Number of object keys in the JSON text of the section.
    """

    names: tuple[str, ...]
    columns: dict[str, Column] = field(default_factory=dict)
    complete: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    keys: int = 0

    def complete_columns(self, *fields: str) -> list[Column] | None:
        """Return the columns of `fields` if every tensor records all of them, else None."""
        return [self.columns[name] for name in fields] if self.complete.issuperset(fields) else None

    def numbers(self, name: str, default: float) -> Sequence[float]:
        """Return a number per tensor: `default` if the field is not recorded or not finite."""
        if name in self.plain:
            return self.columns[name]
        if name not in self.columns:
            return [default] * len(self.names)
        return [value if type(value) in _NUMBERS else default for value in self.columns[name]]

    def recorded(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield name and value of each tensor that records the field, including words for non-finite values."""
        if name in self.columns:
            yield from ((row, value) for row, value in zip(self.names, self.columns[name], strict=True) if value is not UNSET)

    def rows(self, *fields: str) -> Iterable[tuple[Any, ...]]:
        """Return (name, value, ...) of each tensor that records all `fields`, none of them as a word."""
        if not all(name in self.columns for name in fields):
            return ()
        rows = zip(self.names, *(self.columns[name] for name in fields), strict=True)
        if all(name in self.plain or (name in self.complete and type(self.columns[name][0]) is list) for name in fields):
            return rows
        return (row for row in rows if not any(type(value) in (UnsetType, str) for value in row[1:]))

    def colons_in_text(self) -> int:
        """Return the number of colons inside the names and texts of the section without escapes."""
        texts = [column for column in self.columns.values() if type(column[0]) in (str, UnsetType)]
        return "".join(self.names).count(":") + sum(map(colons_in, texts))


EMPTY = SectionColumns(())


def colons_in(column: Column) -> int:
    """Return the number of colons inside the texts of a column."""
    return sum(value.count(":") for value in column if type(value) is str)


def table(section: Mapping[str, Struct]) -> SectionColumns:
    """Return a section transposed to columns.

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
    """Return a column for each field of a section that any member has: the part of `table` that reading needs.

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
    """Tell whether a column holds only numbers; the fastest test is whether they have a sum."""
    try:
        sum(column)
    except TypeError:
        return False
    return True


_BINS = attrgetter("bins")


def keys_inside(name: str, column: Column) -> int:
    """Return the number of object keys inside the histograms and grids of a column."""
    if name == "histogram":
        present = [value for value in column if value is not UNSET]
        ranges = list(map(type, map(_BINS, present))).count(BinRange)
        return len(Histogram.__struct_fields__) * len(present) + len(BinRange.__struct_fields__) * ranges
    return sum(map(_grid_keys, column)) if name in _GRIDS else 0


def _grid_keys(grid: Any) -> int:
    """Return the number of object keys of a grid or a list of grids; only packed ones are objects."""
    if type(grid) is PackedGrid:
        return len(PackedGrid.__struct_fields__)
    return len(PackedGrid.__struct_fields__) * list(map(type, grid)).count(PackedGrid) if type(grid) is list else 0


def holds_keys(text: bytes, keys: int, colons: int) -> bool:
    """Tell whether a text with this many colons holds at most `keys` keys; a decoder keeps only one of two equal keys."""
    # Common writers put a key's colon right after its quote; inside a string that quote would be escaped.
    return colons == keys or text.count(b'":') - text.count(b'\\":') == keys


def count_colons(value: Any) -> int:
    """Return the number of colons in the JSON text of `value` without escapes. It never recurses, at any depth.

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
