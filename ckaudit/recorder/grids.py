"""The grid of one tensor, NumPy's or torch's."""

import math
from typing import Literal

from ckaudit.contract.grids import encode_grid, sample_indices
from ckaudit.contract.tensors import Grid
from ckaudit.recorder.arrays import Array, dense, double, to_numpy


def matrix_grid(array: Array, encoding: Literal["nested", "q8"]) -> Grid | None:
    """Return the sampled elements of a matrix, 32 by 32 at most.

    An array of more dimensions is seen as a matrix (first, all others); one of fewer has no grid.
    """
    if array.ndim < 2 or not math.prod(array.shape):
        return None
    matrix = dense(array)
    matrix = matrix.reshape(matrix.shape[0], -1)
    rows, columns = (sample_indices(size) for size in matrix.shape)
    return encode_grid(to_numpy(double(matrix[rows[:, None], columns])), encoding)
