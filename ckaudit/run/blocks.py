"""Blockwise evaluation of long columns: temporary arrays take only the memory of one block."""

from collections.abc import Callable, Iterator

import numpy as np

BLOCK_ROWS = 2**15
"""Rows that fit into the processor's cache together with their temporary arrays."""


def blocks(count: int, *, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Yield the rows from 0 to `count` in blocks.

    >>> [(rows.start, rows.stop) for rows in blocks(5, size=2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def by_blocks(function: Callable[..., np.ndarray], *columns: np.ndarray, dtype: type = float) -> np.ndarray:
    """Return the result of a row-wise function over columns of the same length, computed block by block.

    Args:
        function: Takes a block of rows of each column, and returns as many rows; each depends on the same row of the columns
            alone.
        columns: Arrays of the same shape.
        dtype: Element type of the result.

    >>> by_blocks(np.add, np.arange(3.0), np.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """
    result: np.ndarray = np.empty(columns[0].shape, dtype)
    for rows in blocks(len(result)):
        result[rows] = function(*(column[rows] for column in columns))
    return result
