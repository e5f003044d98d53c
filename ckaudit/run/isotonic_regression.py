"""The best non-increasing fits of the first points of a curve, and the fits of the points after them by a level or a line."""

import numpy as np
from msgspec import Struct

from ckaudit.run.series import Floats, Steps

MIN_POINTS_OF_LINE = 4
"""A straight line fits any two points exactly, and any three nearly."""


class IsotonicFits(Struct, frozen=True):
    """The best non-increasing fits of the first points of a curve, for each number of points from none to all, shape (N + 1,).

    Attributes:
        squares: Sum of the squared residuals.
        levels: Number of levels of the fit.
        low: Last level.
        width: Number of points of the last level.
    """

    squares: Floats
    levels: Floats
    low: Floats
    width: Steps


def isotonic_fits(values: Floats) -> IsotonicFits:
    """Return the non-increasing isotonic regressions of the first points of a curve, pooling adjacent violators point by point.

    Args:
        values: Finite, shape (N,).

    >>> isotonic_fits(np.array([3.0, 1.0, 2.0])).squares.tolist()
    [0.0, 0.0, 0.0, 0.5]
    """
    count = len(values)
    squares, levels, low, width = np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1, np.int64)
    pools: list[tuple[float, int, float]] = []  # mean, number of points, sum of squared residuals
    total = 0.0
    for row, value in enumerate(values.tolist(), start=1):
        mean, points, within = value, 1, 0.0
        while pools and pools[-1][0] <= mean:
            before, others, theirs = pools.pop()
            total -= theirs
            within += theirs + (mean - before) * (mean - before) * points * others / (points + others)
            mean, points = (mean * points + before * others) / (points + others), points + others
        pools.append((mean, points, within))
        total += within
        squares[row], levels[row], low[row], width[row] = total, len(pools), mean, points
    return IsotonicFits(squares, levels, low, width)


def fits_after(values: Floats, low: Floats) -> tuple[Floats, Floats]:
    """Return how well the points from each row on fit a level, a straight climb from the level before, and a straight fall.

    Args:
        values: Shape (N,).
        low: Level before each row, shape (N,).

    Returns:
        The squared residuals, shape (3, N), infinite where a kind of fit does not exist or has too few points; and the degrees of
        freedom that each kind takes, shape (3, 1).
    """
    points = np.arange(len(values), 0, -1.0)
    sums, squares = (np.cumsum(powers[::-1])[::-1] for powers in (values, np.square(values)))
    by_place = np.cumsum(sums[::-1])[::-1]  # sums from each row on, weighted by place: first value x 1, second x 2, ...
    level = squares - sums**2 / points
    climb = np.maximum(0.0, by_place - low * points * (points + 1) / 2)
    climbing = squares - 2 * low * sums + points * low**2 - climb**2 / (points * (points + 1) * (2 * points + 1) / 6)
    spread = points * (points**2 - 1) / 12
    slope = (by_place - (points + 1) / 2 * sums) / np.maximum(spread, 1.0)
    falling = np.where((slope < 0) & (points >= MIN_POINTS_OF_LINE), level - slope**2 * spread, np.inf)
    return np.maximum(0.0, np.stack([level, climbing, falling])), np.array([[1.0], [1.0], [2.0]])
