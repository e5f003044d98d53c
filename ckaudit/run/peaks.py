"""Peaks of a short curve: what stands above the levels before and after it, and is back."""

import numpy as np

from ckaudit.run.medians import medians_of_three
from ckaudit.run.robust import ENOUGH_FOR_NOISE, difference_noise
from ckaudit.run.series import Floats


def passing_peaks(
    values: Floats, *, min_ratio: float = 1.5, min_deviations: float = 8.0, given_back: float = 0.5
) -> list[tuple[int, int, float]]:
    """Return first row, last row and the level before, of each stretch that stands above the levels before and after it.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_ratio: Over the lowest level before.
        min_deviations: Above it, in standard deviations of the noise, where there are points enough to know it.
        given_back: Share of the jump that is gone at a later level.
    """
    if len(values) < 3 or values.min() < 0:  # what crosses zero has no level to stand above
        return []
    noise = difference_noise(values) if len(values) >= ENOUGH_FOR_NOISE else 0.0
    middles = medians_of_three(values)
    middles[[0, -1]] = values[[0, -1]]
    before = np.concatenate([[np.inf], np.minimum.accumulate(np.minimum(middles, _held_by_two(values)))[:-1]])
    after = np.concatenate([np.minimum.accumulate(middles[::-1])[::-1][1:], [np.inf]])
    high = (before > 0) & (values > min_ratio * before) & (values - before > min_deviations * noise)
    high &= after < values - given_back * (values - before)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], high, [False]]).astype(np.int8)))
    return [(int(first), int(end) - 1, float(before[first])) for first, end in zip(edges[::2], edges[1::2], strict=True)]


def _held_by_two(values: Floats) -> Floats:
    """Return the higher of each point and the one before it: a level that two points in a row came down to."""
    return np.asarray(np.maximum(values, np.concatenate([values[:1], values[:-1]])))
