"""Peaks of a curve: what stands above the levels before and after it, and is back."""

import math

import numpy as np

from ckaudit.run.medians import median, medians_of_three
from ckaudit.run.resolution import decimal_step
from ckaudit.run.robust import ENOUGH_FOR_NOISE, difference_noise, noise_without_peaks
from ckaudit.run.series import Floats, Steps

ROUNDED = 3.0
"""A jump by no more units of the last decimal that a log writes may be one of rounding."""


def passing_peaks(
    values: Floats, *, min_ratio: float = 1.5, min_deviations: float = 8.0, given_back: float = 0.5
) -> list[tuple[int, int, float]]:
    """Return first row, last row and the level before, of each stretch that stands above the levels before and after it.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_ratio: Over the lowest level before.
        min_deviations: Above it, in standard deviations of the noise, where there are points enough to know it; of a positive
            curve on a log scale too, for the noise of a loss is in proportion to its level.
        given_back: Share of the jump that is gone at a later level.
    """
    if len(values) < 3 or values.min() < 0:  # what crosses zero has no level to stand above
        return []
    middles = medians_of_three(values)
    middles[[0, -1]] = values[[0, -1]]
    before = np.concatenate([[np.inf], np.minimum.accumulate(np.minimum(middles, _held_by_two(values)))[:-1]])
    after = np.concatenate([np.minimum.accumulate(middles[::-1])[::-1][1:], [np.inf]])
    above = np.where(before > 0, values / before, 0.0)
    noise, share = _noise_of_the_rest(values, above, min_ratio)
    ratio = max(min_ratio, math.exp(min(min_deviations * share, 700.0)))
    high = (above > ratio) & (values - before > max(min_deviations * noise, ROUNDED * float(decimal_step(values).min())))
    high &= after < values - given_back * (values - before)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], high, [False]]).astype(np.int8)))
    return [(int(first), int(end) - 1, float(before[first])) for first, end in zip(edges[::2], edges[1::2], strict=True)]


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
        level = max(median(values[max(0, row - around) : row]), median(values[row + 1 : row + 1 + around]))
        if level > 0 and values[row] > min_ratio * level and values[row] - level > min_deviations * noise:
            rows.append(row)
    return np.array(rows, np.int64)


def _noise_of_the_rest(values: Floats, above: Floats, min_ratio: float, *, max_share: float = 0.25) -> tuple[float, float]:
    """Return the noise of a curve without its highest peaks, and the same as a share of the level; 0 of too few points.

    Two peaks among a dozen points touch most second differences, and would hide behind the noise that they seem to be.

    Args:
        values: Shape (N,).
        above: Each over the level before, shape (N,).
        min_ratio: Of a peak.
        max_share: Share of the points that may be left out.
    """
    peaks = np.argsort(-above)[: int(max_share * len(values))]
    rest = np.ones(len(values), bool)
    rest[peaks[above[peaks] > min_ratio]] = False
    if len(values) < ENOUGH_FOR_NOISE:
        return 0.0, 0.0
    logs = np.log(values) if values.min() > 0 else np.zeros(len(values))
    return noise_without_peaks(values, rest), noise_without_peaks(logs, rest)


def _held_by_two(values: Floats) -> Floats:
    """Return the higher of each point and the one before it: a level that two points in a row came down to."""
    return np.asarray(np.maximum(values, np.concatenate([values[:1], values[:-1]])))
