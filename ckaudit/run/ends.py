"""How far a curve has come down from its first third to its last, and its points that stand alone."""

import math

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median_of
from ckaudit.run.robust import ENOUGH_FOR_NOISE, difference_noise
from ckaudit.run.series import Floats, Steps

MEDIAN_COST = 1.2533
"""The standard error of a median over that of a mean, of normal values: the square root of pi / 2."""

BLOCKS = 24
"""A curve is reduced to the medians of at most so many parts, so that every length is judged alike."""


class Fall(Struct, frozen=True):
    """How far a curve has come down from its first third to its last.

    Attributes:
        first: Median of the first third.
        last: Median of the last third.
        error: Standard error of their difference; NaN where there are too few points.
    """

    first: float
    last: float
    error: float

    @property
    def is_none(self) -> bool:
        """Whether the fall is within two standard errors of nothing, or below one part in a hundred of the level."""
        return self.first - self.last <= max(0.01 * abs(self.first), 2 * self.error)


def fall_of(values: Floats) -> Fall:
    """Return how far a curve has come down.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
    """
    third = max(1, len(values) // 3)
    noise = difference_noise(values) if len(values) >= 5 else math.nan
    error = noise * math.sqrt(2 / third) * (MEDIAN_COST if third > 2 else 1.0)
    return Fall(float(np.median(values[:third])), float(np.median(values[-third:])), error)


def lone_peaks(values: Floats, *, min_ratio: float = 1.5, min_deviations: float = 8.0, around: int = 3) -> Steps:
    """Return the rows that stand above the levels before and after them alike: jumps that are back.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_ratio: Over the higher of the two levels.
        min_deviations: Above it, in standard deviations of the noise, where there are points enough to know it.
        around: Points on each side whose median is the level; one is needed at least.
    """
    noise = difference_noise(values) if len(values) >= ENOUGH_FOR_NOISE else 0.0
    rows = []
    for row in range(1, len(values) - 1):
        level = max(median_of(values[max(0, row - around) : row]), median_of(values[row + 1 : row + 1 + around]))
        if level > 0 and values[row] > min_ratio * level and values[row] - level > min_deviations * noise:
            rows.append(row)
    return np.array(rows, np.int64)
