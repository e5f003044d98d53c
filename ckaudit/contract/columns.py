"""A section of a checkpoint turned from rows to columns.

Checks and series look at one field of every tensor at once. Turning a section around once, in C, makes both cheap, and
the number of fields found tells whether the text held more keys than the contract knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import astuple

from ckaudit.contract.tensors import BinRange, Histogram, PackedGrid

Column = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """One section: `columns[field][i]` is the field of tensor `names[i]`, UNSET where it was not recorded.

    Fields that no tensor recorded have no column.
    """

    names: tuple[str, ...]
    columns: dict[str, Column]
    complete: frozenset[str]
    keys: int

    def complete_columns(self, *fields: str) -> list[Column] | None:
        """Return the columns of `fields` if every tensor recorded every one of them, else None."""
        return [self.columns[name] for name in fields] if self.complete.issuperset(fields) else None


EMPTY = Table((), {}, frozenset(), 0)


def table(section: Mapping[str, Struct]) -> Table:
    """Turn a section around.

    >>> from ckaudit.contract.tensors import DeltaStats
    >>> table({"a": DeltaStats(norm=1.0), "b": DeltaStats(norm=2.0)}).columns
    {'norm': (1.0, 2.0)}
    """
    if not section:
        return EMPTY
    rows = list(map(astuple, section.values()))
    fields = next(iter(section.values())).__struct_fields__
    columns, complete, keys = {}, set(), len(rows)
    for name, column in zip(fields, zip(*rows, strict=True), strict=True):
        missing = column.count(UNSET)
        if missing == len(rows):
            continue
        columns[name] = column
        keys += len(rows) - missing
        if not missing:
            complete.add(name)
    keys += sum(_keys_inside(columns[name]) for name in _NESTED.intersection(columns))
    return Table(tuple(section), columns, frozenset(complete), keys)


_NESTED = frozenset({"histogram", "sampled_grid_32x32", "sampled_qk_grid_32x32", "sampled_qk_grid_32x32_per_head"})
_BINS = attrgetter("bins")


def _keys_inside(column: Column) -> int:
    """Return how many object keys the histograms and grids of a column hold."""
    kinds = list(map(type, column))
    keys = len(PackedGrid.__struct_fields__) * kinds.count(PackedGrid)
    if histograms := kinds.count(Histogram):
        present = column if histograms == len(column) else [value for value in column if value is not UNSET]
        ranges = list(map(type, map(_BINS, present))).count(BinRange)
        keys += len(Histogram.__struct_fields__) * histograms + len(BinRange.__struct_fields__) * ranges
    if list in kinds:
        keys += sum(
            _keys_inside(tuple(value)) for value in column if type(value) is list and value and type(value[0]) is PackedGrid
        )
    return keys


def count_keys(value: Any) -> int:
    """Return how many object keys the JSON text of `value` holds.

    >>> count_keys({"a": [{"b": 1}, {"c": 2}], "d": 3})
    4
    """
    if isinstance(value, Struct):
        present = [item for item in astuple(value) if item is not UNSET]
        return len(present) + sum(count_keys(item) for item in present if isinstance(item, (Struct, dict, list)))
    if isinstance(value, dict):
        return len(value) + sum(count_keys(item) for item in value.values() if isinstance(item, (Struct, dict, list)))
    if isinstance(value, list) and value and isinstance(value[0], (Struct, dict)):
        return sum(map(count_keys, value))
    return 0
