"""Trends: slopes that noise does not bend, and the course of a series in one word."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Steps

FEW = 64
"""Points of a series whose pairs are kept: a window's."""


class Trend(Struct, frozen=True):
    """A straight line through noisy points.

    Attributes:
        slope: Median slope of all pairs of points, in units of y per unit of x; NaN for fewer than two points.
        p: Two-sided probability of so steady a rise or fall by chance; 1 where there are too few points to tell.
        points: Points used.
    """

    slope: float
    p: float
    points: int


def theil_sen(x: Floats, y: Floats, *, max_points: int = 1_000) -> Trend:
    r"""Fit a trend by the median of pairwise slopes.

    $$b = \operatorname{median}_{i<j,\,x_i \ne x_j} \frac{y_j - y_i}{x_j - x_i}, \qquad
      S = \sum_{i<j} \operatorname{sign}(x_j - x_i)\operatorname{sign}(y_j - y_i)$$

    p is that of S under the normal approximation with continuity correction and ties (Mann 1945, Kendall 1975; slope:
    Theil 1950, Sen 1968). Points that are not finite are left out.

    Args:
        x: Shape (N,).
        y: Shape (N,).
        max_points: Longer series are thinned evenly, for pairs grow with the square.

    >>> theil_sen(np.arange(5.0), np.array([0.0, 2.0, 4.0, 99.0, 8.0])).slope
    2.0
    """
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(known) > max_points:
        known = known[np.linspace(0, len(known) - 1, max_points).astype(np.int64)]
    x, y = x[known], y[known]
    first, second = _few_pairs(len(x)) if len(x) <= FEW else np.triu_indices(len(x), 1)
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
    """Return the variance of Mann-Kendall's S where values may be tied in x and in y (Kendall 1970, section 4)."""
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


# The course of a series in one word: steady, rising, falling, running away, collapsing, coming back, or up and down.
Word = Literal["steady", "rising", "falling", "runaway", "collapse", "recovery", "oscillating", "too_few"]


class Course(Struct, frozen=True):
    """How a series went.

    Attributes:
        word: The verdict.
        start: Level at the start: the median of the first third.
        end: Level at the end: the median of the last third.
        ratio: End over start; NaN where the start is 0.
        p: Probability of so steady a rise or fall by chance (Mann-Kendall).
    """

    word: Word
    start: float
    end: float
    ratio: float
    p: float


def course(
    values: Sequence[float],
    *,
    min_change: float = 0.1,
    runaway_ratio: float = 4.0,
    lowest: float = 0.25,
    given_back: float = 0.25,
    came_back: float = 0.5,
) -> Course:
    """Say how a series went. Points that are not finite are left out; where they lie in time does not matter.

    Args:
        values: In order of time, shape (T,).
        min_change: Change between the ends that counts, as a share of the larger: the dashboards' stable series move by less
            than 8 %, their drop by 16 %.
        runaway_ratio: A rise to that many times is a runaway: the dashboards' logits grow nearly ten times, their drill of the
            activations half as much again, which is to be watched.
        lowest: A fall to less than that share is a collapse; for a rate of faults, such as overflows, that is the cure.
        given_back: Share of the whole way that went against the trend, from which on it is no trend but an oscillation.
        came_back: Share of a rise that was given back, from which on the series recovered.
    """
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        return Course("too_few", np.nan, np.nan, np.nan, 1.0)
    third = max(1, len(known) // 3)
    start, end, top = median(known[:third]), median(known[-third:]), float(known.max())
    trend = theil_sen(np.arange(len(known), dtype=float), known)
    ratio = end / start if start else np.nan
    size = max(abs(start), abs(end))
    bump = (
        top - max(start, end) > min_change * abs(top)
        and top - end > came_back * (top - start)
        and end > start - min_change * size
    )
    word: Word
    if bump and _goes_up_then_down(known):
        word = "recovery"
    elif abs(end - start) <= min_change * size:
        word = "steady"
    elif len(known) > 3 and _against(known) > given_back:
        word = "oscillating"
    elif end > start:
        word = "runaway" if start <= 0 or ratio > runaway_ratio else "rising"
    else:
        word = "collapse" if abs(end) < lowest * abs(start) else "falling"
    return Course(word, start, end, ratio, trend.p)


def _against(values: Floats) -> float:
    """Return the share of the whole way that goes against the direction from the first to the last point."""
    moves = np.diff(values)
    whole = float(np.abs(moves).sum())
    return float(np.abs(moves[np.sign(moves) == -np.sign(values[-1] - values[0])]).sum()) / whole if whole else 0.0


def _goes_up_then_down(values: Floats, *, max_contrary_share: float = 0.25) -> bool:
    """Tell whether a series rises to its top and falls from there, but for a small share of the way."""
    top = int(np.argmax(values))
    parts = [part for part in (values[: top + 1], values[top:]) if len(part) > 1]
    return 0 < top < len(values) - 1 and all(_against(part) <= max_contrary_share for part in parts)
