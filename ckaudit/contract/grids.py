"""Grids: a matrix seen at 32 rows and 32 columns, how they are written, read, and take turns."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckaudit.contract.encode import significant
from ckaudit.contract.numbers import Number
from ckaudit.contract.tensors import Grid, PackedGrid

GridEncoding = Literal["nested", "q8", "none"]
GRID_SIZE = 32

Floats = NDArray[np.float64]


def sample_indices(size: int, count: int = GRID_SIZE) -> NDArray[np.intp]:
    """Return the rows or columns that a grid holds, floor(i * size / count); all of them where there are fewer.

    >>> sample_indices(64)[:4].tolist(), sample_indices(3).tolist()
    ([0, 2, 4, 6], [0, 1, 2])
    """
    count = min(size, count)
    return np.arange(count) * size // max(count, 1)


def sample_grid(values: ArrayLike) -> Floats:
    """Return the sampled rows and columns of the last two dimensions, shape (..., <= 32, <= 32)."""
    array = np.asarray(values, dtype=np.float64)
    rows, columns = sample_indices(array.shape[-2]), sample_indices(array.shape[-1])
    return array[..., rows[:, None], columns]


def pack(values: ArrayLike) -> PackedGrid:
    """Return finite values as bytes: value = min + (max - min) * byte / 255, off by at most half of such a step."""
    array = np.asarray(values, dtype=np.float64)
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    scale = (high - low) or 1.0
    data = np.rint((array - low) / scale * 255).astype(np.uint8)
    return PackedGrid("q8", list(array.shape), low, high, b64encode(data.tobytes()).decode("ascii"))


def nest(values: ArrayLike) -> list[list[Number]]:
    """Return a matrix as nested numbers of 4 digits, with words where they are not finite."""
    return [significant(row) for row in np.asarray(values, dtype=np.float64).tolist()]


def encode_grid(values: ArrayLike, encoding: Literal["nested", "q8"]) -> Grid:
    """Return one matrix as a grid.

    Args:
        values: The sampled elements, shape (r, c).
        encoding: Bytes or numbers; a matrix with a non-finite cell is nested, because a byte has no word for it.
    """
    array = np.asarray(values, dtype=np.float64)
    return pack(array) if encoding == "q8" and np.isfinite(array).all() else nest(array)


def encode_grids(values: ArrayLike, encoding: Literal["nested", "q8"]) -> PackedGrid | list[Grid]:
    """Return a stack of matrices (H, r, c): packed as one, or a list of nested ones."""
    array = np.asarray(values, dtype=np.float64)
    return pack(array) if encoding == "q8" and np.isfinite(array).all() else [nest(matrix) for matrix in array]


def unpack(grid: PackedGrid | Sequence[Grid] | Sequence[Sequence[Number]]) -> Floats:
    """Return the values of a grid, or of a stack of them.

    Args:
        grid: Packed, nested, or a list of either; words of non-finite numbers are read as these numbers.

    Returns:
        The values in float64, shape (r, c) or (H, r, c).
    """
    if isinstance(grid, PackedGrid):
        data = np.frombuffer(b64decode(grid.data), dtype=np.uint8).reshape(grid.shape)
        low, high = float(grid.min), float(grid.max)
        return np.asarray(low + (high - low) * (data / 255.0), dtype=np.float64)
    if grid and isinstance(grid[0], PackedGrid):
        return np.stack([unpack(matrix) for matrix in grid])  # type: ignore[arg-type]
    return np.array(grid, dtype=np.float64)


def depths_due(ordinal: int, depths: Sequence[int | None], *, everything_each: int = 5, cycle: int = 40) -> frozenset[int | None]:
    """Return the layers whose grids are written at the checkpoint with this ordinal.

    Layers take turns, so that each is seen at least once in `cycle` checkpoints; the first, middle and last block and
    what lies outside the blocks (None: embedding, head) are also seen at every `everything_each`-th checkpoint.
    The numbers are this contract's own decision; only the ordinal decides, so two runs with one cadence compare.

    Args:
        ordinal: Checkpoints that the cadence asked for until now, as `cadence.ordinal` counts them.
        depths: Depth of every tensor and layer, in the order of the forward pass, in any number.
        everything_each: Distance of the checkpoints with the landmarks.
        cycle: Checkpoints in which every layer is seen.

    >>> sorted(depths_due(7, [0, 1, 2, 3]))
    [3]
    """
    layers = list(dict.fromkeys(depths))
    turns = -(-len(layers) // cycle)
    due = {layers[(ordinal * turns + offset) % len(layers)] for offset in range(turns)}
    if ordinal % everything_each == 0:
        due |= landmarks(depths)
    return frozenset(due)


def landmarks(depths: Sequence[int | None]) -> frozenset[int | None]:
    """Return the first, middle and last block, and None for what lies outside the blocks."""
    blocks = sorted({depth for depth in depths if depth is not None})
    return frozenset({None, *(blocks[i] for i in (0, len(blocks) // 2, -1) if blocks)})
