"""The statistics of one tensor, NumPy's or torch's: moments in float64, percentiles, histogram and grid."""

import math
from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.encode import significant
from ckaudit.contract.grids import encode_grid, sample_indices
from ckaudit.contract.numbers import Number, to_word
from ckaudit.contract.tensors import PERCENTILE_LEVELS, BinRange, Grid, Histogram, PackedGrid
from ckaudit.recorder.arrays import CHUNK, Array, dense, double, ends, library, pieces, to_numpy

T = TypeVar("T")

EXACT_UP_TO = 2**17  # elements; sorting more costs longer than all other statistics together
SAMPLES = 4_096
BINS = 16


class Moments(Struct, frozen=True):
    """Count, mean and spread of a tensor's finite elements, and the norm of all of them."""

    numel: int
    finite: int
    mean: float
    m2: float
    min: float
    max: float
    norm: float
    mean_abs: float
    zeros: int

    @property
    def std(self) -> float:
        """Population standard deviation, sqrt(m2 / finite)."""
        return math.sqrt(self.m2 / self.finite) if self.finite else math.nan

    @property
    def nonfinite(self) -> int:
        """Elements that are NaN or infinite."""
        return self.numel - self.finite


def moments(values: Array, *, chunk: int = CHUNK) -> Moments:
    r"""Return the moments of a flat array.

    Each chunk is measured in float64, in two passes; chunks are merged after Chan, Golub and LeVeque (1983):
    $$\delta = \mu_b - \mu_a,\quad \mu = \mu_a + \delta\,n_b/n,\quad M = M_a + M_b + \delta^2 n_a n_b / n$$
    """
    rows = [_measure(piece) for piece in pieces(values, chunk)]
    table = library(values).stack([row for _, row in rows]).tolist() if rows else []
    count, mean, m2, low, high, squares, absolute, zeros = 0, 0.0, 0.0, math.inf, -math.inf, 0.0, 0.0, 0
    for (n, _), (square, total, zero, mu, m, smallest, largest) in zip(rows, table, strict=True):
        squares, absolute, zeros = squares + square, absolute + total, zeros + int(zero)
        if not n:
            continue
        delta, merged = mu - mean, count + n
        mean, m2 = mean + delta * n / merged, m2 + m + delta * delta * count * n / merged
        low, high, count = min(low, smallest), max(high, largest), merged
    if not count:
        mean = m2 = low = high = absolute = math.nan
    norm = math.sqrt(squares) if squares >= 0 else math.nan
    return Moments(values.shape[0], count, mean, m2, low, high, norm, absolute / max(count, 1), zeros)


def _measure(piece: Array) -> tuple[int, Array]:
    """Return how many elements are finite, and squares of all, sum of magnitudes, zeros, mean, m2, min and max of these."""
    x, lib = double(piece), library(piece)
    squares = x.dot(x)
    if not math.isfinite(float(squares)):
        x = x[lib.isfinite(x)]
    absolute, zeros = abs(x).sum(), (x == 0).sum(dtype=lib.float64)
    if not x.shape[0]:
        return 0, lib.stack([squares, absolute, zeros, zeros, zeros, zeros, zeros])
    mean = x.mean()
    deviation = x - mean
    return x.shape[0], lib.stack([squares, absolute, zeros, mean, deviation.dot(deviation), *ends(x)])


def stride_of(shape: Sequence[int], *, samples: int = SAMPLES) -> int:
    """Return every how many elements a tensor is sampled, so that at most `samples` are taken.

    The stride shares no factor with the last dimension: otherwise all samples would come from the same few columns.
    """
    stride = max(1, -(-math.prod(shape) // samples))
    while stride > 1 and shape and math.gcd(stride, shape[-1]) > 1:
        stride += 1
    return stride


def sample(values: Array, shape: Sequence[int], *, exact_up_to: int = EXACT_UP_TO) -> tuple[NDArray[np.float64], int | None]:
    """Return the sorted finite elements, and how many were looked at where that was not all of them.

    Args:
        values: The elements in one dimension.
        shape: The shape they come from, which decides the stride between samples.
        exact_up_to: Most elements that are all looked at.
    """
    sampled = values.shape[0] > exact_up_to
    array = to_numpy(values[:: stride_of(shape)] if sampled else values)
    finite = np.sort(array[np.isfinite(array)])
    return finite.astype(np.float64), array.size if sampled else None


def quantiles(ordered: NDArray[np.float64], levels: tuple[float, ...]) -> list[float]:
    """Return values at levels in percent of sorted elements, linear between neighbours; NaN of nothing."""
    if not ordered.size:
        return [math.nan] * len(levels)
    place = np.asarray(levels) / 100 * (ordered.size - 1)
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, ordered.size - 1)
    share = place - below
    found: list[float] = (ordered[below] * (1 - share) + ordered[above] * share).tolist()
    return found


def percentiles(ordered: NDArray[np.float64]) -> list[Number]:
    """Return the values at the contract's seven levels, with 4 digits."""
    return significant(quantiles(ordered, PERCENTILE_LEVELS))


def histogram(ordered: NDArray[np.float64], *, bins: int = BINS) -> Histogram | None:
    """Return counts in bins of equal width from the smallest to the largest element; None of nothing.

    Every bin holds its lower edge, the last one both. Bins around equal elements are one unit wide altogether, or twice
    their magnitude where that is more.
    """
    if not ordered.size:
        return None
    low, high = float(ordered[0]), float(ordered[-1])
    if low == high:
        low, high = low - max(0.5, abs(low)), high + max(0.5, abs(high))
    edges = np.linspace(low, high, bins + 1)
    below = np.searchsorted(ordered, edges[1:-1], side="left")
    counts = np.diff(np.concatenate(([0], below, [ordered.size])))
    return Histogram(BinRange([shortest(low), shortest(high)], bins), counts.tolist())


def matrix_grid(array: Array, encoding: Literal["nested", "q8"]) -> Grid | None:
    """Return the sampled elements of a matrix, 32 by 32 at most.

    An array of more dimensions is seen as a matrix (first, all others); one of fewer has no grid.
    """
    if array.ndim < 2 or not math.prod(array.shape):
        return None
    matrix = dense(array)
    matrix = matrix.reshape(matrix.shape[0], -1)
    rows, columns = (sample_indices(size) for size in matrix.shape)
    return short_ends(encode_grid(to_numpy(double(matrix[rows[:, None], columns])), encoding))


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


def shorten(value: float) -> float:
    """Return the shortest decimal that names the same float32.

    Values that a float32 cannot hold as a normal number keep all their digits.

    >>> shorten(0.10000000149011612), shorten(1e300)
    (0.1, 1e+300)
    """
    return float(str(np.float32(value))) if 1e-37 < abs(value) < 1e38 else value


def shortest(value: float) -> Number:
    """Return `shorten` of a value, or the contract's word where it is not finite."""
    return to_word(shorten(value))
