"""The best falling curve through the first points of a curve, and how well the points after them fit a level or a line."""

import numpy as np
from msgspec import Struct

from ckaudit.run.series import Floats, Steps

MIN_POINTS_OF_LINE = 4
"""A straight line fits two points, and three nearly, whatever they are."""


class IsotonicFits(Struct, frozen=True):
    """The best falling curves through the first points of a curve, for each number of points from none to all, shape (N + 1,).

    Attributes:
        squares: Sum of the squared differences.
        levels: How many levels the falling curve has.
        low: The last of them.
        width: Points of that last one.
    """

    squares: Floats
    levels: Floats
    low: Floats
    width: Steps


def isotonic_fits(values: Floats) -> IsotonicFits:
    """Return the falling isotonic regressions of the first points of a curve, by pooling adjacent violators one point at a time.

    Args:
        values: Finite, shape (N,).

    >>> isotonic_fits(np.array([3.0, 1.0, 2.0])).squares.tolist()
    [0.0, 0.0, 0.0, 0.5]
    """
    count = len(values)
    squares, levels, low, width = np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1, np.int64)
    pools: list[tuple[float, int, float]] = []  # mean, points, squared differences within
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
        The squared differences, shape (3, N), infinite where a kind of fit is none or has too few points; and what each kind
        costs in degrees of freedom, shape (3, 1).
    """
    points = np.arange(len(values), 0, -1.0)
    sums, squares = (np.cumsum(powers[::-1])[::-1] for powers in (values, np.square(values)))
    by_place = np.cumsum(sums[::-1])[::-1]  # from each row on, the first value once, the second twice, ...
    level = squares - sums**2 / points
    climb = np.maximum(0.0, by_place - low * points * (points + 1) / 2)
    climbing = squares - 2 * low * sums + points * low**2 - climb**2 / (points * (points + 1) * (2 * points + 1) / 6)
    spread = points * (points**2 - 1) / 12
    slope = (by_place - (points + 1) / 2 * sums) / np.maximum(spread, 1.0)
    falling = np.where((slope < 0) & (points >= MIN_POINTS_OF_LINE), level - slope**2 * spread, np.inf)
    return np.maximum(0.0, np.stack([level, climbing, falling])), np.array([[1.0], [1.0], [2.0]])
