"""How far a curve falls, whether it ever does, and how small a fall its noise would let anybody see."""

import math

import numpy as np
from msgspec import Struct

from ckaudit.run.learning_curves import fall_likelihood_ratio, level_likelihood_ratio
from ckaudit.run.medians import median
from ckaudit.run.rises import sustained_rise
from ckaudit.run.robust import (
    ENOUGH_FOR_NOISE,
    MEDIAN_COST,
    difference_noise,
    means_of_parts,
    parts_of,
    rank_trend,
    trimmed_noise,
)
from ckaudit.run.series import Floats, Series

POINTS_OF_A_COURSE = 5
"""A law of learning takes four numbers."""


class Fall(Struct, frozen=True):
    """How far a curve comes down from an earlier part to a later one.

    Attributes:
        first: Level of the earlier part.
        last: Level of the later one.
        error: Standard error of their difference; NaN where there are too few points.
    """

    first: float
    last: float
    error: float

    @property
    def is_none(self) -> bool:
        """Whether the fall is within two standard errors of nothing, or below one part in a hundred of the level."""
        return self.first - self.last <= max(0.01 * abs(self.first), 2 * self.error)

    @property
    def deviations(self) -> float:
        """The fall over its standard error."""
        return (self.first - self.last) / self.error if self.error > 0 else math.inf if self.first > self.last else 0.0


def fall_between_thirds(values: Floats) -> Fall:
    """Return how far a curve has come down from its first third to its last; the error is NaN of fewer than five points.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
    """
    third = max(1, len(values) // 3)
    noise = difference_noise(values) if len(values) >= 5 else math.nan
    error = noise * math.sqrt(2 / third) * (MEDIAN_COST if third > 2 else 1.0)
    return Fall(median(values[:third]), median(values[-third:]), error)


def largest_fall(values: Floats) -> Fall:
    """Return how far a curve comes down at the split of its points where that stands out most.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
    """
    _, levels = parts_of(values)
    noise = trimmed_noise(levels)
    splits = np.arange(1, len(levels))
    sums = np.cumsum(levels)
    first, last = sums[:-1] / splits, (sums[-1] - sums[:-1]) / (len(levels) - splits)
    errors = np.sqrt(1 / splits + 1 / (len(levels) - splits))
    place = int(np.argmax((first - last) / errors))
    return Fall(float(first[place]), float(last[place]), noise * float(errors[place]))


def _limit_by_noise(error: float, points: int, max_deviations: float) -> float:
    """Return how far a fall must go to stand out of its standard error; where few points tell the noise badly, further."""
    return max_deviations * (1 + 4 / points) * error


def ends_lower(values: Floats, *, min_fall: float, max_deviations: float = 3.3) -> bool:
    """Tell whether a curve of two points or more ends below its first by a share of it, in a fall that no noise makes.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_fall: The share.
        max_deviations: As in never_falls; of fewer than five points the noise is not known.

    >>> ends_lower(np.array([1.0, 0.4, 0.4]), min_fall=0.01), ends_lower(np.array([1.0, 0.4, 1.0]), min_fall=0.01)
    (True, False)
    """
    fall, enough = largest_fall(values), min_fall * abs(float(values[0]))
    by_noise = _limit_by_noise(fall.error, len(values), max_deviations) if len(values) >= 5 else 0.0
    end = min(float(values[-1]), median(values[-max(1, len(values) // 3) :]))
    return fall.first - fall.last > max(enough, by_noise) and float(values[0]) - end > enough


def never_falls(
    values: Floats, *, min_fall: float = 0.01, max_fall: float = 0.3, max_deviations: float = 3.3, max_noise: float = 0.2
) -> Fall | None:
    """Return how little a curve comes down that never does, None where it falls, rises or cannot be judged.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_fall: Share of the level; what falls by less has not fallen.
        max_fall: Share of the level; what falls by more has fallen, whatever its noise.
        max_deviations: Fall over its standard error; the largest of all splits of pure noise stays below that. Where few points
            tell the noise badly, more.
        max_noise: Share of the level; a curve of more noise, as of a policy gradient, has no level to fall from.
    """
    if len(values) < 3:
        return None
    fall = largest_fall(values)
    level = abs(median(values))
    _, levels = parts_of(values)
    if level == 0 or trimmed_noise(levels) > max_noise * level:
        return None
    # Steadier than one curve of pure noise in twenty where few points tell little else, than one in a hundred where they do.
    if rank_trend(levels) < (-1.6 if len(values) < ENOUGH_FOR_NOISE else -2.3):
        return None
    by_noise = _limit_by_noise(fall.error, len(values), max_deviations) if len(values) >= 5 else 0.0
    if fall.first - fall.last > max(min_fall * level, min(by_noise, max_fall * level)):
        return None
    return fall if sustained_rise(values) is None else None


def flat_fall(values: Floats, *, max_ratio: float = 5.0, max_scatter: float = 0.2) -> Fall | None:
    """Return how little a curve comes down that does not fall as a learning curve does; None of any other. It may rise.

    Args:
        values: Finite, in the order of steps, shape (N,). Of fewer than five, or where one is not positive, never_falls must do.
        max_ratio: Log likelihood ratio of a law of learning; of a hundred curves of pure noise one of ten points and more comes
            so far, three of five points.
        max_scatter: Share of the level; a curve that scatters or moves about by more has none.
    """
    levels = means_of_parts(values)
    if len(levels) < POINTS_OF_A_COURSE or levels.min() <= 0:
        return never_falls(values)
    if float(np.std(levels)) > max_scatter * float(np.mean(levels)) or fall_likelihood_ratio(levels) >= max_ratio:
        return None
    return largest_fall(values)


def fall_would_show(values: Floats, fall: float, *, min_ratio: float = 2.0) -> bool:
    """Tell whether a curve that stands would look otherwise, had it fallen by a share of its level in its first quarter.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
        fall: The share.
        min_ratio: Log likelihood ratio of a level over such a fall; two in a hundred of the curves that fall so come so far;
            where few points tell the noise badly, more.
    """
    levels = means_of_parts(values)
    if len(levels) < POINTS_OF_A_COURSE or levels.min() <= 0:
        return smallest_visible_fall(values) <= fall
    return level_likelihood_ratio(levels, fall=fall) >= min_ratio * (1 + 4 / len(values))


def smallest_visible_fall(values: Floats, *, max_deviations: float = 3.3) -> float:
    """Return the smallest fall, as a share of the level, that would stand out of the noise of a curve.

    It is one that is over after a quarter of the curve, as a fine-tuning's often is: the first quarter is held against the rest.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
        max_deviations: As in never_falls; where few points tell the noise badly, more.
    """
    _, levels = parts_of(values)
    noise = trimmed_noise(levels)
    level = abs(median(values))
    error = noise * math.sqrt(16 / (3 * len(levels)))
    return _limit_by_noise(error, len(values), max_deviations) / level if level else math.inf


def is_solved(loss: Series | None, *, share: float = 0.1, first: int = 5, last: int = 20) -> bool:
    """Tell whether a loss has come down to a share of what it began with, by the medians of its first and last points.

    What a model lacks did not keep it from its task then. Not where the loss is not known.
    """
    values = loss.values[loss.finite[:, 0], 0] if loss is not None else np.empty(0)
    return len(values) > first and 0 <= median(values[-last:]) <= share * median(values[:first])
