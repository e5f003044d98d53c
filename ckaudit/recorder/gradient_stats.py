"""The statistics of gradients: of one, and of the norms of all together."""

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET

from ckaudit.contract.tensors import GradientStats, Grid
from ckaudit.recorder.arrays import Array, bytes_hash, dense, dtype_name, flat
from ckaudit.recorder.tensors import histogram, matrix_grid, moments, percentiles, sample, shortest


def gradient_stats(
    gradient: Array, *, grid: Literal["nested", "q8"] | None = None, scale: float = 1.0, exact: bool = False
) -> GradientStats:
    """Return the statistics of one gradient divided by `scale`.

    Mean, spread and extremes are those of the finite elements; the norm of a gradient that holds a NaN is NaN.

    Args:
        gradient: The gradient as it is in memory, dense or sparse.
        grid: How to write its sampled elements; None leaves them out.
        scale: Loss scale that still lies on it.
        exact: Whether to hash its bytes, those in memory.
    """
    values = flat(gradient)
    if scale != 1.0:
        values = values / scale
    found = moments(values)
    if not found.numel:
        return GradientStats(dtype=dtype_name(gradient), numel=0, nonfinite_count=0)
    ordered, sampled = sample(values, gradient.shape)
    bins = histogram(ordered)
    return GradientStats(
        norm=shortest(found.norm),
        mean=shortest(found.mean),
        std=shortest(found.std),
        min=shortest(found.min),
        max=shortest(found.max),
        zero_fraction=shortest(found.zeros / found.numel),
        percentiles=percentiles(ordered),
        sampled=UNSET if sampled is None else sampled,
        histogram=UNSET if bins is None else bins,
        sampled_grid_32x32=(_grid(gradient, grid, scale) or UNSET) if grid else UNSET,
        dtype=dtype_name(gradient),
        numel=found.numel,
        nonfinite_count=found.nonfinite,
        hash=bytes_hash(gradient) if exact else UNSET,
    )


def _grid(gradient: Array, encoding: Literal["nested", "q8"], scale: float) -> Grid | None:
    return matrix_grid(gradient if scale == 1.0 else dense(gradient) / scale, encoding)


def total_norm(norms: Sequence[float]) -> float:
    """Return the norm of all tensors together, sqrt(sum of squares) (M9): NaN where one is NaN."""
    return math.sqrt(math.fsum(norm * norm for norm in norms)) if all(map(math.isfinite, norms)) else sum(norms)


def top_share(norms: Sequence[float]) -> float | None:
    """Return the largest tensor's share of the squared norm, 0 to 1; None where there is none to share."""
    squares = [norm * norm for norm in norms]
    total = math.fsum(squares) if all(map(math.isfinite, squares)) else math.nan
    return max(squares) / total if total > 0 else None
