"""What few points tell: noise, a rise that stays, a fall that never comes, a jump that is back.

All of it holds for any number of points from three on, and for any real numbers. Noise is taken from second differences, in which
neither a trend nor a single jump is seen, and medians stand for levels. Where there are too few points to know the noise, the
size of a change carries it, and `Rise.noise_is_known` says so.
"""

import math

import numpy as np
from msgspec import Struct

from ckaudit.run.series import Floats, Steps

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation times this is the standard deviation of normal values (Rousseeuw & Croux 1993)."""

MEDIAN_COST = 1.2533
"""The standard error of a median over that of a mean, of normal values: the square root of pi / 2."""

BLOCKS = 24
"""A curve is reduced to the medians of at most so many parts, so that every length is judged alike."""

ENOUGH_FOR_NOISE = 8
"""Below so many points the median of second differences says little."""


class Rise(Struct, frozen=True):
    """A level at the end that is higher than one before, and stays so.

    Attributes:
        lowest: Row of the middle of the lowest part.
        onset: First row from which the curve stays above a quarter of the rise; where the noise is not known,
            the one after the lowest.
        low: Level of the lowest part.
        end: Level of the end.
        noise_is_known: Whether the rise is held against the noise of the curve; if not, its size alone speaks.
    """

    lowest: int
    onset: int
    low: float
    end: float
    noise_is_known: bool


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


def difference_noise(values: Floats) -> float:
    r"""Return the standard deviation of the noise of a curve.

    $$\hat\sigma = 1.4826 \operatorname{median} |y_{i-1} - 2 y_i + y_{i+1}| / \sqrt 6$$

    A straight line has none, and a jump touches two of the differences only. NaN for fewer than three points.

    Args:
        values: Finite, shape (N,).

    >>> difference_noise(np.arange(10.0))
    0.0
    """
    if len(values) < 3:
        return math.nan
    return MAD_TO_SIGMA * float(np.median(np.abs(np.diff(values, 2)))) / math.sqrt(6)


def sustained_rise(
    values: Floats, *, min_share: float = 0.15, min_share_alone: float = 0.3, min_errors: float = 5.0
) -> Rise | None:
    """Return how a curve ends above its own lowest level, None where it does not.

    The curve is reduced to medians of equal parts; the end is the lower of its last two levels, of many points the middle of the
    last three, so that no single point makes it, and the lowest level before is a median of as many.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_share: Rise over the lowest level, where that is positive, that also exceeds the noise.
        min_share_alone: Rise over the lowest level that speaks for itself where the noise is not known.
        min_errors: Rise over its standard error; the lowest of many levels lies two below the middle by chance.
    """
    if len(values) < 3:
        return None
    parts = np.array_split(np.arange(len(values)), min(len(values), BLOCKS))
    levels = np.array([np.median(values[part]) for part in parts])
    width = 1 if len(parts) < 5 else 2 if len(parts) < ENOUGH_FOR_NOISE else 3
    end = float(np.median(levels[-width:]) if width > 2 else levels[-width:].min())
    earlier = np.median(np.lib.stride_tricks.sliding_window_view(levels[:-width], width), axis=1)
    place = int(np.argmin(earlier))
    low, rise = float(earlier[place]), end - float(earlier[place])
    noise_is_known = len(values) >= ENOUGH_FOR_NOISE
    # Of fewer than five points the end is a single one, which must stand out twice as far.
    share = min_share if noise_is_known else min_share_alone if width > 1 else 2 * min_share_alone
    if rise <= 0 or not _is_large(levels[:-width], low, rise, share):
        return None
    if noise_is_known and rise <= min_errors * _error_of_level(values, len(parts), width):
        return None
    if not noise_is_known:  # every point may count, so the rise begins right after the lowest
        lowest = int(np.argmin(levels[:-width]))
        return Rise(lowest, lowest + 1, float(levels[lowest]), end, noise_is_known)
    below = np.flatnonzero(levels <= low + rise / 4)
    onset = int(parts[min(int(below[-1]) + 1, len(parts) - 1)][0])
    middle = parts[place + width // 2]
    return Rise(int(middle[len(middle) // 2]), onset, low, end, noise_is_known)


def _is_large(levels: Floats, low: float, rise: float, share: float) -> bool:
    """Tell whether a rise is large: against the level where that is positive, else against how far the curve had gone before."""
    return rise > (share * low if low > 0 else float(np.ptp(levels)) / 2)


def _error_of_level(values: Floats, parts: int, width: int) -> float:
    """Return the standard error of the difference of two levels, each a median of `width` parts."""
    points = width * max(1, len(values) // parts)
    return difference_noise(values) * math.sqrt(2 / points) * (MEDIAN_COST if points > 2 else 1.0)


def fall_of(values: Floats) -> Fall:
    """Return how far a curve has come down.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
    """
    third = max(1, len(values) // 3)
    noise = difference_noise(values) if len(values) >= 5 else math.nan
    error = noise * math.sqrt(2 / third) * (MEDIAN_COST if third > 2 else 1.0)
    return Fall(float(np.median(values[:third])), float(np.median(values[-third:])), error)


def begins_with_its_run(steps: Steps) -> bool:
    """Tell whether a log begins where its run did: within its own interval, or the first twentieth of its steps.

    >>> begins_with_its_run(np.array([50, 100, 150])), begins_with_its_run(np.array([6900, 6910, 6920]))
    (True, False)
    """
    if len(steps) < 2:
        return False
    return bool(steps[0] <= max(1.5 * float(np.median(np.diff(steps))), 0.05 * float(steps[-1])))


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
        sides = (np.median(values[max(0, row - around) : row]), np.median(values[row + 1 : row + 1 + around]))
        level = float(max(sides))
        if level > 0 and values[row] > min_ratio * level and values[row] - level > min_deviations * noise:
            rows.append(row)
    return np.array(rows, np.int64)
