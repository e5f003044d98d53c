"""Grids: a matrix sampled at 32 rows and 32 columns, and its encodings."""

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckaudit.contract.io.codec import significant
from ckaudit.contract.schema.checkpoint import GRID_SIZE, Grid, PackedGrid
from ckaudit.contract.schema.numbers import Number, encode_float

GridEncoding = Literal["nested", "q8", "none"]

Floats = NDArray[np.float64]


def sample_indices(size: int, count: int = GRID_SIZE) -> NDArray[np.intp]:
    """Return the rows or columns of a grid, floor(i * size / count); all of them if there are fewer.

    >>> sample_indices(64)[:4].tolist(), sample_indices(3).tolist()
    ([0, 2, 4, 6], [0, 1, 2])
    """
    count = min(size, count)
    return np.arange(count) * size // max(count, 1)


def pack(values: ArrayLike) -> PackedGrid:
    """Return finite values as bytes: value = min + (max - min) * byte / 255, with an error of at most half a step."""
    array = np.asarray(values, dtype=np.float64)
    return _packed(array, *_ends(array))


def _ends(values: Floats) -> tuple[float, float]:
    """Return the smallest and the largest value; NaN if one is NaN, 0 if there are no values."""
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def _packed(values: Floats, low: float, high: float) -> PackedGrid:
    scale = (high - low) or 1.0
    data = np.rint((values - low) / scale * 255).astype(np.uint8)
    return PackedGrid("q8", list(values.shape), low, high, b64encode(data.tobytes()).decode("ascii"))


def _packed_where_possible(values: Floats) -> PackedGrid | None:
    """Return values as bytes; None if a cell is not finite, or if the range overflows."""
    low, high = _ends(values)
    return _packed(values, low, high) if math.isfinite(high - low) else None


def nest(values: ArrayLike, digits: int | None = 4) -> list[list[Number]]:
    """Return a matrix as nested numbers with this many digits (None: all), and words for non-finite ones."""
    rows = np.asarray(values, dtype=np.float64).tolist()
    return [[encode_float(value) for value in row] if digits is None else significant(row, digits) for row in rows]


def encode_grid(values: ArrayLike, encoding: Literal["nested", "q8"], digits: int | None = 4) -> Grid:
    """Return one matrix as a grid.

    Args:
        values: The sampled elements, shape (r, c).
        encoding: Bytes or numbers; a matrix that bytes cannot represent is nested.
        digits: Significant digits of nested numbers; None: all.
    """
    array = np.asarray(values, dtype=np.float64)
    packed = _packed_where_possible(array) if encoding == "q8" else None
    return nest(array, digits) if packed is None else packed


def encode_grids(values: ArrayLike, encoding: Literal["nested", "q8"], digits: int | None = 4) -> PackedGrid | list[Grid]:
    """Return a stack of matrices (H, r, c), packed as one or as a list of nested ones."""
    array = np.asarray(values, dtype=np.float64)
    packed = _packed_where_possible(array) if encoding == "q8" else None
    return [nest(matrix, digits) for matrix in array] if packed is None else packed


_SHARES = np.arange(256, dtype=np.uint8) / 255.0
"""Share of the range from the smallest to the largest value for each byte."""


def unpack(grid: PackedGrid | Sequence[Grid] | Sequence[Sequence[Number]]) -> Floats:
    """Return the values of a grid, or of a stack of them.

    Args:
        grid: Packed, nested, or a list of either; words for non-finite numbers become these numbers.

    Returns:
        The values in float64, shape (r, c) or (H, r, c).
    """
    if isinstance(grid, PackedGrid):
        data = np.frombuffer(b64decode(grid.data), dtype=np.uint8).reshape(grid.shape)
        # This form reproduces both ends exactly, so packing again gives the same bytes.
        levels = float(grid.min) * (1.0 - _SHARES) + float(grid.max) * _SHARES
        return np.asarray(levels[data], dtype=np.float64)
    if grid and isinstance(grid[0], PackedGrid):
        return np.stack([unpack(matrix) for matrix in grid])  # type: ignore[arg-type]
    return _of_lists(grid)


def _of_lists(grid: Sequence[Any]) -> Floats:
    """Return nested lists as an array; packing numbers flat takes half the time of `numpy.array` on nested lists."""
    flat: Sequence[Any] = grid
    shape: tuple[int, ...] = (len(grid),)
    try:
        while flat and type(flat[0]) is list:
            width = len(flat[0])
            if {*map(len, flat)} != {width}:
                raise ValueError("rows of different lengths")
            flat, shape = [*chain.from_iterable(flat)], (*shape, width)
        packed = bytearray(struct.pack(f"{len(flat)}d", *flat))
    except (struct.error, TypeError):  # words among the numbers
        return np.array(grid, dtype=np.float64)
    return np.frombuffer(packed).reshape(shape)
