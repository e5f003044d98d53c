"""The statistics of gradients: of one, and of the norms of all together."""

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET

from ckaudit.contract.schema.checkpoint import GradientStats, Grid
from ckaudit.recorder.stats.arrays import Array, bytes_hash, dense, dtype_name
from ckaudit.recorder.stats.batched_stats import Measured, measure
from ckaudit.recorder.stats.grids import matrix_grid


def gradient_stats(
    gradient: Array,
    *,
    measured: Measured | None = None,
    grid: Literal["nested", "q8"] | None = None,
    scale: float = 1.0,
    exact: bool = False,
) -> GradientStats:
    """Return the statistics of one gradient divided by `scale`.

    Mean, spread and extremes are those of the finite elements; the norm of a gradient that holds a NaN is NaN.

    Args:
        gradient: The gradient as it is in memory, dense or sparse.
        measured: What a sweep over many gradients told of this one; None: it is measured now.
        grid: How to write its sampled elements; None leaves them out.
        scale: Loss scale that still lies on it.
        exact: Whether to hash its bytes, those in memory.
    """
    measured = measured or measure([gradient], scale=scale)[0]
    moments = measured.moments
    if not moments.numel:
        return GradientStats(dtype=dtype_name(gradient), numel=0, nonfinite_count=0)
    norm, mean, std, least, most, zeros = measured.numbers
    return GradientStats(
        norm=norm,
        mean=mean,
        std=std,
        min=least,
        max=most,
        zero_fraction=zeros,
        percentiles=measured.percentiles,
        sampled=UNSET if measured.sampled is None else measured.sampled,
        histogram=measured.histogram or UNSET,
        sampled_grid_32x32=(_grid(gradient, grid, scale) or UNSET) if grid else UNSET,
        dtype=dtype_name(gradient),
        numel=moments.numel,
        nonfinite_count=moments.nonfinite,
        hash=bytes_hash(gradient) if exact else UNSET,
    )


def _grid(gradient: Array, encoding: Literal["nested", "q8"], scale: float) -> Grid | None:
    return matrix_grid(gradient if scale == 1.0 else dense(gradient) / scale, encoding)


def total_norm(norms: Sequence[float]) -> float:
    """Return the norm of all tensors together, sqrt(sum of squares) (M9): NaN where one is NaN."""
    total = math.hypot(*norms)
    return total if total < math.inf else sum(norms)


def top_share(norms: Sequence[float]) -> float | None:
    """Return the largest tensor's share of the squared norm, 0 to 1; None where there is none to share."""
    squares = [norm * norm for norm in norms]
    total = math.fsum(squares) if all(map(math.isfinite, squares)) else math.nan
    return max(squares) / total if total > 0 else None
