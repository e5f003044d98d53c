"""Sampled grids: rectangles of at most 32 by 32 with elements that the tensor, or a probability, can have."""

import math
from binascii import Error, a2b_base64
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, PointerParts, check
from ckaudit.contract.schema.checkpoint import GRID, GRID_SIZE, QK_GRIDS, PackedGrid
from ckaudit.contract.schema.numbers import total
from ckaudit.contract.schema.report import Finding

SECTIONS = ("weights", "gradients")
FIELDS = (GRID, *QK_GRIDS)


@check(
    kinds.GRID_RAGGED,
    kinds.GRID_SHAPE,
    kinds.GRID_OUTSIDE,
    kinds.GRID_PACKING,
    reads=("weights.*.shape", *(f"{section}.*.{name}" for section in SECTIONS for name in (GRID, "min", "max"))),
)
def tensor_grid(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """A grid of elements lies within its tensor, in size and in value.

    Args:
        subject: The checkpoint.
        rounding: Error relative to the largest element: a grid has four digits.
    """
    for section in SECTIONS:
        table = subject.table(section)
        if GRID not in table.columns:
            continue
        shapes = dict(subject.table("weights").recorded("shape"))
        lows, highs = table.numbers("min", -math.inf), table.numbers("max", math.inf)
        for name, grid, low, high in zip(table.names, table.columns[GRID], lows, highs, strict=True):
            if grid is UNSET:
                continue
            place = (section, name, GRID)
            if wrong := list(_shape(subject, place, grid, 2)) or list(_within(subject, place, grid, shapes.get(name))):
                yield from wrong
            elif (ends := _ends(grid)) and not (low <= ends[0] and ends[1] <= high):
                slack = rounding * max((abs(end) for end in (low, high) if math.isfinite(end)), default=0.0)
                for value in ends:
                    if not low - slack <= value <= high + slack:
                        yield subject.find(kinds.GRID_OUTSIDE, place, f"between {low:.6g} and {high:.6g}", value)
                        break


def _within(subject: CheckInput, place: PointerParts, grid: Any, shape: list[int] | None) -> Iterator[Finding]:
    """A grid of a matrix has at most the matrix's rows and columns; other tensors may be flattened in any way."""
    if shape is None or len(shape) != 2:
        return
    rows, columns = grid.shape if isinstance(grid, PackedGrid) else (len(grid), max(map(len, grid), default=0))
    if rows > shape[0] or columns > shape[1]:
        yield subject.find(kinds.GRID_SHAPE, place, f"within the shape {shape} of its tensor", f"{rows} x {columns}")


@check(
    kinds.GRID_RAGGED,
    kinds.GRID_SHAPE,
    kinds.GRID_PACKING,
    kinds.ATTENTION_GRID_RANGE,
    kinds.ATTENTION_ROW_MASS,
    kinds.GRID_HEADS,
    reads=tuple(f"attention.*.{name}" for name in (*QK_GRIDS, "heads")),
)
def attention_grid(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """A grid of probabilities holds values from 0 to 1, and each row of sampled keys sums to at most 1.

    Args:
        subject: The checkpoint.
        rounding: Absolute error. A softmax of bfloat16 (8 bits) sums to 1 within 0.4 %; four digits add 0.05 %.
    """
    table, layers = subject.table("attention"), subject.entries("attention")
    for field in QK_GRIDS:
        for name, grids in table.recorded(field):
            place = ("attention", name, field)
            heads = layers[name].heads
            if isinstance(grids, PackedGrid):
                yield from list(_shape(subject, place, grids, 3)) or _probabilities(subject, place, grids, rounding)
            for head, grid in enumerate(() if isinstance(grids, PackedGrid) else grids):
                inner = (*place, head)
                yield from list(_shape(subject, inner, grid, 2)) or _probabilities(subject, inner, grid, rounding)
            count = (grids.shape or [0])[0] if isinstance(grids, PackedGrid) else len(grids)
            if heads is not UNSET and count != heads:
                yield subject.find(kinds.GRID_HEADS, place, f"one grid for each of {heads} heads", f"{count} grids")


def _probabilities(subject: CheckInput, place: PointerParts, grid: Any, rounding: float) -> Iterator[Finding]:
    """Check the elements of one grid of probabilities, then the sum of each row."""
    if _plausible(grid, rounding) or (ends := _ends(grid)) is None:
        return
    wrong = ends[0] if ends[0] < -rounding else ends[1] if ends[1] > 1 + rounding else None
    if wrong is not None:
        yield subject.find(kinds.ATTENTION_GRID_RANGE, place, "between 0 and 1", wrong)
    elif isinstance(grid, list) and (mass := max(map(_total, grid), default=0.0)) > 1 + rounding:
        yield subject.find(kinds.ATTENTION_ROW_MASS, place, "at most 1 in each row", mass)


def _plausible(grid: Any, rounding: float) -> bool:
    """Tell whether no element is negative and no row sums above 1; then no element exceeds 1 either."""
    try:
        return bool(min(map(min, grid)) >= 0 and max(map(sum, grid)) <= 1 + rounding)
    except (TypeError, ValueError):  # packed, words among the numbers, or an empty row
        return False


def _total(row: list[Any]) -> float:
    """Return the sum of the finite numbers of a row."""
    try:
        return float(sum(row))
    except TypeError:  # words for non-finite numbers
        return total(value for value in row if isinstance(value, float))


def _ends(grid: Any) -> tuple[float, float] | None:
    """Return the smallest and the largest finite element; None if there is none."""
    if isinstance(grid, PackedGrid):
        return None if isinstance(grid.min, str) or isinstance(grid.max, str) else (grid.min, grid.max)
    try:
        low, high = min(map(min, grid)), max(map(max, grid))
    except (TypeError, ValueError):  # words among the numbers, or an empty row
        low = high = ""
    if isinstance(low, str) or isinstance(high, str):
        finite = [value for row in grid for value in row if isinstance(value, float)]
        return (min(finite), max(finite)) if finite else None
    return low, high


def _shape(subject: CheckInput, place: PointerParts, grid: Any, dimensions: int) -> Iterator[Finding]:
    """Check whether a grid is a rectangle that is small enough.

    Args:
        subject: The checkpoint.
        place: Path of the grid.
        grid: The grid, nested or packed.
        dimensions: Number of dimensions of a packed grid: 2, or 3 if it holds all heads.
    """
    if isinstance(grid, PackedGrid):
        yield from _packing(subject, place, grid, dimensions)
        return
    lengths = set(map(len, grid))
    if len(lengths) > 1:
        yield subject.find(kinds.GRID_RAGGED, place, "rows of one length", f"rows of {min(lengths)} to {max(lengths)}")
    elif len(grid) > GRID_SIZE or max(lengths, default=0) > GRID_SIZE:
        yield subject.find(kinds.GRID_SHAPE, place, f"at most {GRID_SIZE} x {GRID_SIZE}", f"{len(grid)} x {max(lengths)}")


def _packing(subject: CheckInput, place: PointerParts, grid: PackedGrid, dimensions: int) -> Iterator[Finding]:
    """Check whether the bytes of a packed grid are complete, one per element."""
    if len(grid.shape) != dimensions or max(grid.shape[-2:], default=0) > GRID_SIZE:
        expected = f"{dimensions} sizes, the last two at most {GRID_SIZE}"
        yield subject.find(kinds.GRID_SHAPE, (*place, "shape"), expected, str(grid.shape))
        return
    if not isinstance(grid.min, str) and not isinstance(grid.max, str) and grid.min > grid.max:
        yield subject.find(kinds.GRID_PACKING, (*place, "min"), f"at most max {grid.max:.6g}", grid.min)
    try:
        size = len(a2b_base64(grid.data, strict_mode=True))
    except (Error, ValueError):
        yield subject.find(kinds.GRID_PACKING, (*place, "data"), "base64", "something else")
        return
    if size != math.prod(grid.shape):
        yield subject.find(kinds.GRID_PACKING, (*place, "data"), f"{math.prod(grid.shape)} bytes", f"{size} bytes")
