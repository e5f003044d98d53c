"""Returns of a policy's episodes: their course in thirds, what of it is lost, and whether more could be had at all."""

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.robust import difference_noise
from ckaudit.run.series import Floats

PARTS = (10, 24)
"""Fewest and most equal parts of a series; its course and its noise are those of their means."""

MIN_BY_PART = 10
"""Minimum number of returns in a part where there are more than the fewest parts."""


class Course(Struct, frozen=True):
    """The course of one series of returns.

    Attributes:
        first: Mean of the first third.
        last: Mean of the last third.
        best: Mean of the better half of the parts after the first third.
        error: Standard error of the difference between the two thirds.
        spread: Distance between the tenth and the ninetieth percentile of all returns.
    """

    first: float
    last: float
    best: float
    error: float
    spread: float

    @property
    def has_risen(self) -> bool:
        """Whether the last third lies above the first by more than two standard errors."""
        return self.last - self.first > 2 * self.error


def course_of(values: Floats) -> Course:
    """Return the course of a series of ten returns and more."""
    parts = np.array_split(values, int(np.clip(len(values) // MIN_BY_PART, *PARTS)))
    means = np.array([part.mean() for part in parts])
    third = len(means) // 3
    # Returns that follow each other may be alike, as means over the last hundred are: the noise of the parts shows that.
    white = float(np.std(np.diff(values)) / np.sqrt(2 * len(parts[0])))
    error = max(white, difference_noise(means)) * float(np.sqrt(2 / third))
    first, late = float(means[:third].mean()), np.sort(means[third:])
    spread = float(np.quantile(values, 0.9) - np.quantile(values, 0.1))
    return Course(first, float(means[-third:].mean()), float(late[len(late) // 2 :].mean()), error, spread)


def is_at_most(values: Floats, max_share: float) -> bool:
    """Tell whether many of the returns are about the highest of all.

    >>> is_at_most(np.array([500.0, 498.0, 320.0, 499.0]), 0.2), is_at_most(np.array([-200.0, -200.0, -190.0, 40.0, -200.0]), 0.3)
    (True, False)
    """
    return bool((values >= values.max() - np.ptp(values) / 50).mean() >= max_share)


def is_of_equals(values: Floats) -> bool:
    """Tell whether returns are around 0, and the highest is the opposite of the lowest, as of a game against an equal player.

    >>> is_of_equals(np.array([1.0, -1.0, -1.0, 1.0, 0.0])), is_of_equals(np.array([-200.0, 5.0, 12.0, 3.0]))
    (True, False)
    """
    range_of_all = np.ptp(values)
    return bool(abs(values.max() + values.min()) <= 0.1 * range_of_all and abs(values.mean()) <= 0.25 * range_of_all)


def what_is_lost(values: Floats, *, max_kept: float = 0.2, min_deviations: float = 4.0) -> tuple[float, float, float, int] | None:
    """Return the medians of the first, the best and the last tenth, and the first row of the fall; None: nothing is lost.

    Args:
        values: Finite, ten at least.
        max_kept: Largest share of what was gained that is left where it is lost.
        min_deviations: Deviations of the noise by which something must have been gained, or lost below the first.
    """
    tenths = np.array_split(np.arange(len(values)), 10)
    middle = np.array([median(values[rows]) for rows in tenths])
    error = difference_noise(values) / float(np.sqrt(len(tenths[0])))
    begun, end, best = float(middle[0]), float(middle[-1]), float(middle.max())
    has_gained = best - begun > min_deviations * error
    if has_gained and end - begun <= max_kept * (best - begun):
        last = int(np.flatnonzero(middle - begun > max_kept * (best - begun))[-1])
        return begun, best, end, int(tenths[last][-1])
    if not has_gained and begun - end > min_deviations * error:
        return begun, best, end, 0
    return None
