"""A positive quantity that comes to stand orders of magnitude above what it was, in any number of points from three on."""

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.robust import BLOCKS, ENOUGH_FOR_NOISE, difference_noise, parts_of
from ckaudit.run.series import Floats, Steps

ALONE = 5
"""With fewer points the end is a single one, which must lie the square of the ratio above the lowest."""

FEW = 10
"""Up to so many points the last one alone will do where it lies the square of the ratio above the others: no more may come."""

START = 2
"""The first levels that are never a growth by themselves: the way from a start at nearly zero to the ordinary size."""


class Growth(Struct, frozen=True):
    """A level at the end that is many times what it was before, and above all of it.

    Attributes:
        onset: First row from which on all are nearer to the end than to the lowest level, on a scale of ratios.
        low: Median level before.
        lowest: Lowest level before.
        end: Level of the end.
    """

    onset: int
    low: float
    lowest: float
    end: float


def sustained_growth(values: Floats, *, min_ratio: float, min_errors: float = 4.0) -> Growth | None:
    """Return how a positive quantity has grown to its end, None where it has not or is back.

    The curve is reduced to medians of equal parts. The end is the middle of its last three levels, of few points the lower of the
    last two. It must lie above every level of a part that goes from the beginning to some level on, by `min_ratio` above their
    median and, where the noise is known, by `min_errors` standard errors; of fewer points above their highest. Of few points the
    last one alone will do, as `FEW` says.

    Args:
        values: Positive and finite, in the order of steps, shape (N,).
        min_ratio: Of the end to what was before.
        min_errors: Of the logarithm of that ratio.
    """
    if len(values) <= START:
        return None
    starts, levels = parts_of(values, BLOCKS)
    knows_noise = len(levels) >= ENOUGH_FOR_NOISE
    width = 3 if knows_noise else 2 if len(levels) >= ALONE else 1
    end = float(median(levels[-width:]) if knows_noise else levels[-width:].min())
    others = levels[:-1]
    if len(levels) <= FEW and levels[-1] >= max(min_ratio**2 * median(others), min_ratio * others.max()):
        return _grown(starts, levels, len(others), 1, float(levels[-1]))
    if len(levels) < ALONE and end < min_ratio**2 * levels[:START].min():
        return None
    noise = difference_noise(np.log(levels)) if knows_noise else 0.0
    for count in range(START, len(levels) - width + 1):
        highest = float(levels[:count].max())
        low = median(levels[:count]) if knows_noise else highest
        errors = noise * np.sqrt(1 / count + 1 / width)
        if end > highest and end >= min_ratio * low and np.log(end / low) > min_errors * errors:
            return _grown(starts, levels, count, width, end)
    return None


def _grown(starts: Steps, levels: Floats, count: int, width: int, end: float) -> Growth:
    """Return the growth from the first `count` levels to the end, made of the last `width`."""
    lowest = float(levels[:count].min())
    near = np.flatnonzero(levels[: len(levels) - width] < np.sqrt(lowest * end))
    return Growth(int(starts[near[-1] + 1]), median(levels[:count]), lowest, end)
