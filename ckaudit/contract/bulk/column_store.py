"""Column store: the numbers of many files side by side, and what is constant over the files."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import chain, starmap
from operator import attrgetter
from struct import Struct as Packer
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Struct

from ckaudit.contract.bulk.specialized_decoder import FieldKey, SpecializedDecoder
from ckaudit.contract.checks import CheckInput
from ckaudit.contract.checks.histograms import SECTIONS as COUNTED
from ckaudit.contract.checks.histograms import totals
from ckaudit.contract.checks.norms import NORMS, numels
from ckaudit.contract.checks.tensors import LARGEST
from ckaudit.contract.io.columns import Column, SectionColumns
from ckaudit.contract.schema.checkpoint import GRID_SIZE

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_COUNTS, _RANGES, _BINS = attrgetter("counts"), attrgetter("bins.range"), attrgetter("bins.count")


class ColumnSlot(Struct, frozen=True):
    """Position of one column's numbers among all numbers of a file.

    Attributes:
        place: Section and field of the column.
        start: Bytes before its first number.
        lengths: Length of each entry's list, or its number of bins; None if each entry is one number.
        packer: Writes its numbers, except those of bins.
    """

    place: FieldKey
    start: int
    lengths: list[int] | None
    packer: Packer


class LearnedLayout(Struct, frozen=True):
    """Facts that are constant over the files, taken from the sample file; arrays have one number per entry.

    Attributes:
        slots: Positions to write packed columns to.
        places: Positions to read the numbers of a file from; a histogram has its summed `counts` and its `range`.
        width: Numbers per file, except those of grids.
        sizes: Elements of each tensor, NaN if unknown.
        counted: Finite elements of each tensor.
        totals: Smallest and largest total that a histogram can have.
        largest: Largest number of each tensor's type.
        entropies: Log of the keys of each head.
        same_names: Whether the deltas have the names of the weights.
        shapes: Shape of each entry's tensor, UNSET if unknown.
    """

    slots: list[ColumnSlot]
    places: dict[FieldKey, slice]
    width: int
    sizes: dict[str, Floats]
    counted: dict[str, Floats]
    totals: dict[str, tuple[Floats, Floats]]
    largest: dict[str, Floats]
    entropies: Floats
    same_names: bool
    shapes: dict[str, Column]


def learn_layout(subject: CheckInput, decoder: SpecializedDecoder) -> LearnedLayout:
    """Return the facts of one file that are constant over the files."""
    tables = subject.tables
    slots, places, width = _slots(subject, decoder)
    attention = subject.table("attention")
    shapes = dict(subject.table("weights").recorded("shape"))
    heads = list(map(len, attention.columns["entropy_per_head"])) if ("attention", "entropy_per_head") in places else []
    keys = attention.columns.get("keys", (UNSET,) * len(heads))
    limits = [math.log(key) if key is not UNSET and key else math.inf for key in keys]
    sizes = {name: np.array(numels(subject, name), float) for name in NORMS if name in tables}
    return LearnedLayout(
        slots=slots,
        places=places,
        width=width,
        sizes=sizes,
        counted={name: size - np.array(tables[name].numbers("nonfinite_count", 0.0)) for name, size in sizes.items()},
        totals={name: _arrays(totals(subject, name, tables[name])) for name in COUNTED if name in tables},
        largest={name: _largest(columns) for name, columns in tables.items()},
        entropies=np.repeat(limits, heads) if heads else np.array(math.inf),
        same_names=subject.table("weights").names == subject.table("weight_deltas").names,
        shapes={name: tuple(shapes.get(tensor, UNSET) for tensor in tables[name].names) for name in NORMS if name in tables},
    )


def _slots(subject: CheckInput, decoder: SpecializedDecoder) -> tuple[list[ColumnSlot], dict[FieldKey, slice], int]:
    """Return the position of each packed column for writing and reading, and the total count of numbers."""
    slots: list[ColumnSlot] = []
    places: dict[FieldKey, slice] = {}
    width = 0
    for name, section in decoder.sections.items():
        for field in section.packed:
            column, size = subject.tables[name].columns[field], len(section.names)
            lengths = None if type(column[0]) is float else list(map(_BINS if field == "histogram" else len, column))
            count = size if lengths is None or field == "histogram" else sum(lengths)
            slots.append(ColumnSlot((name, field), 8 * width, lengths, Packer(f"{count}d")))
            for part, numbers in (("counts", size), ("range", 2 * size)) if field == "histogram" else ((field, count),):
                places[name, part] = slice(width, width + numbers)
                width += numbers
    return slots, places, width


def _arrays(both: tuple[Any, Any]) -> tuple[Floats, Floats]:
    return np.array(both[0], float), np.array(both[1], float)


def _largest(columns: SectionColumns) -> Floats:
    """Return the largest number of each entry's type, infinite if unknown."""
    types = columns.columns.get("dtype", (UNSET,) * len(columns.names))
    return np.array([LARGEST.get(str(type_).removeprefix("torch."), math.inf) for type_ in types])


class GridBlock(Struct, frozen=True):
    """Every grid of one field in a block: its position, smallest and largest element, and largest sum of a row."""

    files: npt.NDArray[np.intp]
    entries: npt.NDArray[np.intp]
    low: Floats
    high: Floats
    mass: Floats


class PackedGrids(Struct, frozen=True):
    """The packed grids of one field in one file; `places` holds entry, rows and columns of each."""

    places: list[tuple[int, int, int]]
    data: bytes


class FileBlock(Struct, frozen=True):
    """The numbers of some files, shape (files, numbers of one file), and their grids."""

    numbers: Floats
    layout: LearnedLayout
    grids: dict[FieldKey, list[PackedGrids]]
    names: dict[str, int]

    @property
    def files(self) -> int:
        """Number of files."""
        return len(self.numbers)

    def none(self) -> Bools:
        """Return False for each file."""
        return np.zeros(self.files, bool)

    def has(self, section: str, field: str) -> bool:
        """Tell whether a column is packed."""
        return (section, field) in self.layout.places

    def shape(self, section: str) -> tuple[int, int]:
        """Return the number of files, and of a section's entries in each."""
        return self.files, self.names[section]

    def get(self, section: str, field: str, default: float = math.nan) -> Floats:
        """Return the numbers of a field; one default per file if it is not recorded."""
        if not self.has(section, field):
            return np.full((self.files, 1), default)
        return self.numbers[:, self.layout.places[section, field]]

    def grid_block(self, section: str, field: str) -> GridBlock | None:
        """Return all grids of a field; None if there are none."""
        packed = self.grids.get((section, field), [])
        places = np.array([place for grids in packed for place in grids.places], int).reshape(-1, 3)
        if not len(places):
            return None
        values = np.frombuffer(b"".join(grids.data for grids in packed))
        sizes = places[:, 1] * places[:, 2]
        starts = np.cumsum(sizes) - sizes
        widths = np.repeat(places[:, 2], places[:, 1])
        rows = np.add.reduceat(values, np.cumsum(widths) - widths)
        return GridBlock(
            files=np.repeat(np.arange(self.files), [len(grids.places) for grids in packed]),
            entries=places[:, 0],
            low=np.minimum.reduceat(values, starts),
            high=np.maximum.reduceat(values, starts),
            mass=np.maximum.reduceat(rows, np.cumsum(places[:, 1]) - places[:, 1]),
        )


@cache
def packer(count: int) -> Packer:
    """Return a packer of `count` numbers."""
    return Packer(f"{count}d")


def write_columns(slots: Sequence[ColumnSlot], tables: dict[str, SectionColumns], row: memoryview) -> None:
    """Write the packed columns of one file.

    Args:
        slots: Positions to write to.
        tables: The sections of the file.
        row: Receives the numbers, shape (layout.width,).

    Raises:
        TypeError: Lists or histograms have another length than in the sample file.
        struct.error: A value is not a number.
    """
    for slot in slots:
        section, field = slot.place
        column = tables[section].columns[field]
        if slot.lengths is None:
            slot.packer.pack_into(row, slot.start, *column)
        elif field == "percentiles":  # the decoder checks their number
            slot.packer.pack_into(row, slot.start, *chain.from_iterable(column))
        elif field != "histogram":
            _expect(slot.lengths, column)
            slot.packer.pack_into(row, slot.start, *chain.from_iterable(column))
        else:
            counts = list(map(_COUNTS, column))
            _expect(slot.lengths, counts)
            if list(map(_BINS, column)) != slot.lengths:
                raise TypeError
            slot.packer.pack_into(row, slot.start, *map(sum, counts))
            ends = packer(2 * len(counts))
            ends.pack_into(row, slot.start + slot.packer.size, *chain.from_iterable(map(_RANGES, column)))


def _expect(lengths: list[int], lists: Sequence[list[float]]) -> None:
    if list(map(len, lists)) != lengths:
        raise TypeError


def pack_grids(column: Column, shapes: Column | None, heads: Column | None) -> PackedGrids:
    """Pack the grids of one field to bytes.

    Args:
        column: A grid or a list of grids per entry, UNSET if it has none.
        shapes: Shape of each tensor; None if the grids are per head.
        heads: Number of heads of each layer; None if there is one grid per entry.

    Raises:
        TypeError: A grid is not a small rectangle within its tensor, or is already packed.
        struct.error: A grid holds words, or rows of different lengths.
    """
    places, parts = [], []
    for entry, value in enumerate(column):
        if value is UNSET:
            continue
        if heads is not None and heads[entry] is not UNSET and len(value) != heads[entry]:
            raise TypeError
        shape = UNSET if shapes is None else shapes[entry]
        for grid in value if shapes is None else [value]:
            rows, width = len(grid), len(grid[0]) if grid else 0
            if not 0 < rows <= GRID_SIZE or not 0 < width <= GRID_SIZE:
                raise TypeError
            if shape is not UNSET and len(shape) == 2 and (rows > shape[0] or width > shape[1]):
                raise TypeError
            places.append((entry, rows, width))
            parts.append(b"".join(starmap(packer(width).pack, grid)))
    return PackedGrids(places, b"".join(parts))
