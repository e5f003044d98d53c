"""Columns of millions of rows in blocks: what an expression needs on the way takes as much memory as one block."""

from collections.abc import Callable, Iterator

import numpy as np

BLOCK_ROWS = 2**15
"""As many rows as stay in the processor's cache with what is computed of them."""


def blocks(count: int, *, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Yield the rows from 0 to `count` in blocks.

    >>> [(rows.start, rows.stop) for rows in blocks(5, size=2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def by_blocks(function: Callable[..., np.ndarray], *columns: np.ndarray, dtype: type = float) -> np.ndarray:
    """Return what a function makes of columns of the same length, whose row depends on the same row of each alone.

    Args:
        function: Takes the rows of a block of each column, and returns as many.
        columns: Of the same shape.
        dtype: Type of what it returns.

    >>> by_blocks(np.add, np.arange(3.0), np.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """
    result: np.ndarray = np.empty(columns[0].shape, dtype)
    for rows in blocks(len(result)):
        result[rows] = function(*(column[rows] for column in columns))
    return result
