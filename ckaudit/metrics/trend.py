"""Trends: robust slopes."""

import math
from functools import cache

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Steps

MAX_CACHED_POINTS = 64
"""Largest number of points whose pairs are cached: those of a window."""


class Trend(Struct, frozen=True):
    """A straight line through noisy points.

    Attributes:
        slope: Median slope of all pairs of points, in units of y per unit of x; NaN for fewer than two points.
        p: Two-sided probability of so steady a rise or fall by chance; 1 if there are too few points.
        points: Number of points used.
    """

    slope: float
    p: float
    points: int


def theil_sen(x: Floats, y: Floats, *, max_points: int = 1_000) -> Trend:
    r"""Fit a trend by the median of pairwise slopes.

    $$b = \operatorname{median}_{i<j,\,x_i \ne x_j} \frac{y_j - y_i}{x_j - x_i}, \qquad
      S = \sum_{i<j} \operatorname{sign}(x_j - x_i)\operatorname{sign}(y_j - y_i)$$

    p comes from S under the normal approximation with continuity correction and ties (Mann 1945, Kendall 1975; slope: Theil 1950,
    Sen 1968). Non-finite points are left out.

    Args:
        x: Shape (N,).
        y: Shape (N,).
        max_points: Longer series are thinned evenly, because pairs grow with the square.

    >>> theil_sen(np.arange(5.0), np.array([0.0, 2.0, 4.0, 99.0, 8.0])).slope
    2.0
    """
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(known) > max_points:
        known = known[np.linspace(0, len(known) - 1, max_points).astype(np.int64)]
    x, y = x[known], y[known]
    first, second = _few_pairs(len(x)) if len(x) <= MAX_CACHED_POINTS else np.triu_indices(len(x), 1)
    run, rise = x[second] - x[first], y[second] - y[first]
    apart = run != 0
    if not apart.any():
        return Trend(math.nan, 1.0, len(x))
    slopes = rise / run if apart.all() else rise[apart] / run[apart]
    score = float(np.sum(np.sign(run) * np.sign(rise)))
    return Trend(median(slopes), _two_sided(score, _variance(x, y)), len(x))


@cache
def _few_pairs(count: int) -> tuple[Steps, Steps]:
    return np.triu_indices(count, 1)


def _two_sided(score: float, variance: float) -> float:
    if variance <= 0:
        return 1.0
    z = max(abs(score) - 1.0, 0.0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2.0))


def _variance(x: Floats, y: Floats) -> float:
    """Return the variance of Mann-Kendall's S if values may be tied in x and in y (Kendall 1970, section 4)."""
    n = len(x)
    if n > 2 and not _has_ties(x) and not _has_ties(y):
        return n * (n - 1) * (2 * n + 5) / 18
    t, u = (np.unique(values, return_counts=True)[1].astype(float) for values in (x, y))
    plain = n * (n - 1) * (2 * n + 5) - sum(float(np.sum(c * (c - 1) * (2 * c + 5))) for c in (t, u))
    pairs = float(np.sum(t * (t - 1))) * float(np.sum(u * (u - 1))) / (2 * n * (n - 1))
    if n <= 2:
        return plain / 18
    triples = float(np.sum(t * (t - 1) * (t - 2))) * float(np.sum(u * (u - 1) * (u - 2))) / (9 * n * (n - 1) * (n - 2))
    return plain / 18 + triples + pairs


def _has_ties(values: Floats) -> bool:
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())
