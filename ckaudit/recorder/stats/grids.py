"""The grid of one tensor, NumPy's or torch's, and how short its ends are written."""

import math
from functools import cache
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.io.grids import encode_grid, sample_indices
from ckaudit.contract.schema.checkpoint import Grid, PackedGrid
from ckaudit.recorder.stats.arrays import Array, dense_at_hand, double, to_numpy
from ckaudit.recorder.stats.float32_rounding import shorten

T = TypeVar("T")


def matrix_grid(array: Array, encoding: Literal["nested", "q8"]) -> Grid | None:
    """Return the sampled elements of a matrix, 32 by 32 at most.

    An array of more dimensions is seen as a matrix (first, all others); one of fewer has no grid.
    """
    if array.ndim < 2 or not math.prod(array.shape):
        return None
    matrix = dense_at_hand(array)
    matrix = matrix.reshape(matrix.shape[0], -1)
    return short_ends(encode_grid(to_numpy(double(matrix[_places(*matrix.shape)])), encoding))


def short_ends(grid: T, *, tolerance: float = 0.01) -> T:
    """Write the ends of a packed grid as the shortest decimals of the same float32.

    Args:
        grid: A packed grid, changed in place, or another, left alone.
        tolerance: Most that both may change by, as a share of half a step, by which the cells are off anyway.
    """
    if isinstance(grid, PackedGrid):
        low, high = float(grid.min), float(grid.max)
        short = shorten(low), shorten(high)
        if abs(short[0] - low) + abs(short[1] - high) <= tolerance * (high - low) / 510:
            grid.min, grid.max = short
    return grid


@cache
def _places(rows: int, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return sample_indices(rows)[:, None], sample_indices(columns)
