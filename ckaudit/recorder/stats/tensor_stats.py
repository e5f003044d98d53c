"""Statistics of one weight or gradient tensor, its grid and spectral norm; and of the norms of all gradients."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from ckaudit.contract.io.grids import encode_grid, sample_indices
from ckaudit.contract.schema.checkpoint import GradientStats, Grid, WeightStats
from ckaudit.recorder.stats.arrays import (
    Array,
    all_to_numpy,
    bytes_hash,
    dense,
    dense_as_numpy,
    dtype_name,
    is_on_accelerator,
    library,
    to_device,
    to_float64,
)
from ckaudit.recorder.stats.batched_stats import WrittenStats, measure
from ckaudit.recorder.stats.float32_rounding import short_ends, shortest

Cells: TypeAlias = NDArray[np.float64]


def weight_stats(
    tensor: Array,
    *,
    measured: WrittenStats | None = None,
    grid: Literal["nested", "q8"] | None = None,
    cells: Cells | None = None,
    spectral: float | None = None,
    exact: bool = False,
) -> WeightStats:
    """Return the statistics of one weight tensor; mean, spread and extremes are those of its finite elements.

    Args:
        tensor: The weights, of any shape and dtype.
        measured: Result of a sweep over many tensors; None: it is measured now.
        grid: Encoding of its sampled elements; None leaves them out.
        cells: The sampled elements, if `sampled_cells` was called for many tensors.
        spectral: Its largest singular value, if measured.
        exact: Whether to hash its bytes.
    """
    measured = measured or measure([tensor])[0]
    moments, shape = measured.moments, list(dense(tensor).shape)
    facts = WeightStats(shape=shape, dtype=dtype_name(tensor), numel=moments.numel, nonfinite_count=moments.nonfinite)
    if not moments.numel:
        return facts
    facts.frobenius_norm, facts.mean, facts.std, facts.min, facts.max, _ = measured.numbers
    facts.percentiles = measured.percentiles
    facts.sampled = UNSET if measured.sampled is None else measured.sampled
    facts.histogram = measured.histogram or UNSET
    facts.sampled_grid_32x32 = matrix_grid(tensor, grid, cells=cells)
    facts.spectral_norm = UNSET if spectral is None else shortest(spectral)
    facts.hash = bytes_hash(tensor) if exact else UNSET
    return facts


def gradient_stats(
    gradient: Array,
    *,
    measured: WrittenStats | None = None,
    grid: Literal["nested", "q8"] | None = None,
    cells: Cells | None = None,
    scale: float = 1.0,
    exact: bool = False,
) -> GradientStats:
    """Return the statistics of one gradient divided by `scale`.

    Mean, spread and extremes are those of the finite elements; the norm of a gradient that holds a NaN is NaN.

    Args:
        gradient: The gradient as it is in memory, dense or sparse.
        measured: Result of a sweep over many gradients; None: it is measured now.
        grid: Encoding of its sampled elements; None leaves them out.
        cells: The sampled elements, still scaled, if `sampled_cells` was called for many tensors.
        scale: Loss scale that it still contains.
        exact: Whether to hash its bytes as they are in memory.
    """
    measured = measured or measure([gradient], scale=scale)[0]
    moments = measured.moments
    if not moments.numel:
        return GradientStats(dtype=dtype_name(gradient), numel=0, nonfinite_count=0)
    norm, mean, std, lowest, highest, zeros = measured.numbers
    return GradientStats(
        norm=norm,
        mean=mean,
        std=std,
        min=lowest,
        max=highest,
        zero_fraction=zeros,
        percentiles=measured.percentiles,
        sampled=UNSET if measured.sampled is None else measured.sampled,
        histogram=measured.histogram or UNSET,
        sampled_grid_32x32=matrix_grid(gradient, grid, cells=cells, scale=scale),
        dtype=dtype_name(gradient),
        numel=moments.numel,
        nonfinite_count=moments.nonfinite,
        hash=bytes_hash(gradient) if exact else UNSET,
    )


def total_norm(norms: Sequence[float]) -> float:
    """Return the norm of all tensors together, sqrt(sum of squares) (M9); NaN if one is NaN."""
    total = math.hypot(*norms)
    return total if total < math.inf else sum(norms)


def top_share(norms: Sequence[float]) -> float | None:
    """Return the largest tensor's share of the squared norm, 0 to 1; None if the norm is 0 or unknown."""
    squares = [norm * norm for norm in norms]
    total = math.fsum(squares) if all(map(math.isfinite, squares)) else math.nan
    return max(squares) / total if total > 0 else None


# The grid of a tensor: its elements at sampled rows and columns.
def matrix_grid(
    array: Array, encoding: Literal["nested", "q8"] | None, *, cells: Cells | None = None, scale: float = 1.0
) -> Grid | UnsetType:
    """Return the sampled elements of a matrix divided by `scale`, 32 by 32 at most; none if the array is no matrix."""
    if encoding is None:
        return UNSET
    cells = sampled_cells({"": array}).get("") if cells is None else cells
    return UNSET if cells is None else short_ends(encode_grid(cells / scale, encoding))


def sampled_cells(arrays: Mapping[str, Array]) -> dict[str, Cells]:
    """Return the grid elements of each array in float64; all arrays on an accelerator take one transfer.

    An array of more than two dimensions is treated as a matrix (first, all others); one with fewer has no grid.
    """
    places = {name: array for name, array in arrays.items() if array.ndim > 1 and math.prod(array.shape)}
    cells = all_to_numpy([_cells(dense_as_numpy(array)) for array in places.values()])
    return {name: to_float64(of_array) for name, of_array in zip(places, cells, strict=True)}


def _cells(array: Array) -> Array:
    matrix = array.reshape(array.shape[0], -1)
    if not is_on_accelerator(matrix):
        rows, columns = (sample_indices(size) for size in matrix.shape)
        return matrix[rows[:, None], columns]
    rows, columns = (_indices_there(size, matrix.device) for size in matrix.shape)
    return matrix.index_select(0, rows).index_select(1, columns)


@cache
def _indices_there(size: int, device: Any) -> Array:
    return to_device(sample_indices(size), device)


# The largest singular values of chosen weights, each search starting from the last direction.
class SpectralNorms:
    """Measures weights whose names match a pattern, and keeps the direction of each.

    An update turns a direction only a little, so a few rounds find it again; the first search needs dozens.

    Args:
        patterns: Glob patterns of names.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._directions: dict[str, Array] = {}

    def measure(self, tensors: Mapping[str, Array]) -> dict[str, float]:
        """Return the largest singular value of every chosen matrix; NaN for one that is not finite."""
        norms = {}
        for name, tensor in tensors.items():
            if tensor.ndim >= 2 and math.prod(tensor.shape) and any(fnmatchcase(name, pattern) for pattern in self._patterns):
                norms[name], self._directions[name] = spectral_norm(tensor, start=self._directions.get(name))
        return norms


def spectral_norm(
    tensor: Array, *, start: Array | None = None, rounds: int = 100, tolerance: float = 1e-7, mixed: float = 1e-2
) -> tuple[float, Array]:
    r"""Return the largest singular value of a matrix and its direction, by power iteration in float64 (F6, F7).

    $$v \leftarrow \frac{W^\top W v}{\lVert W^\top W v\rVert}, \qquad \sigma_1 \approx \lVert W v\rVert$$

    The estimate rises towards the true value, and stops when a round adds less than the share `tolerance`. No random number is
    drawn. A tensor of more dimensions is treated as (first, all others). One that is not finite has NaN, and no direction.

    Args:
        tensor: The matrix.
        start: The direction of the last search.
        rounds: Maximum number of rounds.
        tolerance: Relative growth of a round below which the search stops.
        mixed: Share of every other direction in the start vector: the largest direction may have changed.
    """
    lib, matrix = library(tensor), _real_matrix(tensor)
    if not bool(lib.isfinite(matrix).all()):
        return math.nan, start
    vector = lib.sin(lib.ones_like(matrix[0]).cumsum(0))
    if start is not None and start.shape == vector.shape:
        vector = start + mixed * vector / lib.linalg.norm(vector)
    sigma = 0.0
    for _ in range(rounds):
        image = matrix @ (vector / lib.linalg.norm(vector))
        before, sigma = sigma, float(lib.linalg.norm(image))
        if sigma - before <= tolerance * sigma:
            break
        vector = matrix.T @ image
    return sigma, vector / lib.linalg.norm(vector)


def _real_matrix(tensor: Array) -> Array:
    """Return a tensor as a float64 matrix (first, all others); a complex A + iB becomes [[A, -B], [B, A]], of equal norm."""
    values = to_float64(dense(tensor))
    if values.ndim == tensor.ndim:
        return values.reshape(tensor.shape[0], -1)
    lib = library(values)
    real, imaginary = (values[..., part].reshape(tensor.shape[0], -1) for part in (0, 1))
    return lib.vstack([lib.hstack([real, -imaginary]), lib.hstack([imaginary, real])])
