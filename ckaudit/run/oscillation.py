"""Oscillation: one period that holds most of what moves in a curve, at any number of points."""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.run.medians import median
from ckaudit.run.robust import difference_noise, parts_of
from ckaudit.run.series import Floats

RESOLUTIONS = (24, 96, 384, 1536, 6144)
"""Parts that a curve is reduced to at least, one after the other: slow swings show in few, fast ones in many."""

MIN_POINTS = 8
"""Points of which a periodogram says anything; fewer must swing widely."""

MIN_DEVIATIONS = 8.0
"""Swings of a curve without a period must stand out of its noise so far."""

UNCUT_SHARE = 0.75
"""A swing between the medians of parts is less than one between points: a median cuts the tip of a turn."""

MIN_CYCLES = 3
"""Fewer are a valley, or a hump."""


class Oscillation(Struct, frozen=True):
    """A part of a curve that goes up and down without getting anywhere.

    Attributes:
        first: First row of it.
        cycles: How often it goes up and down.
        low: Lower level of it.
        high: Higher level of it.
    """

    first: int
    cycles: float
    low: float
    high: float


def oscillation(
    values: Floats, *, min_swing: float = 0.2, min_power: float = 0.5, max_chance: float = 3e-3, max_progress: float = 0.5
) -> Oscillation | None:
    """Return how a curve oscillates after its first fall, None where it does not.

    One frequency must hold the share `min_power` of the variance (a sine has all, a square wave 81 %, a saw 61 %), more than
    noise reaches with a probability of `max_chance` (Fisher's g test, 1929).

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_swing: From the lower level to the higher one, as a share of the middle.
        min_power: Share of the variance around a straight line.
        max_chance: Probability of so much by chance.
        max_progress: Fall from the first third to the last, as a share of the swing: what falls further gets somewhere.
    """
    if len(values) < 4:
        return None
    if len(values) < MIN_POINTS:
        return _of_few(values, min_swing)
    max_chance /= 1 + sum(len(values) >= 2 * parts for parts in RESOLUTIONS)  # one look for each resolution
    for parts in RESOLUTIONS:
        starts, levels = parts_of(values, parts)
        reached = np.flatnonzero(levels <= levels[len(levels) // 2 :].max())
        rest = int(reached[0]) if len(reached) else 0
        swing = _of_one_period(levels[rest:], min_swing, min_power, max_chance, max_progress)
        if swing is not None:
            low, high, cycles = swing
            return Oscillation(int(starts[rest]), cycles, low, high)
        if len(values) < 2 * parts:
            break
    return _of_turns(values, min_swing)


def _of_one_period(
    levels: Floats, min_swing: float, min_power: float, max_chance: float, max_progress: float
) -> tuple[float, float, float] | None:
    """Return lower level, higher level and cycles of levels that oscillate."""
    count = len(levels)
    if count < MIN_POINTS:
        return None
    low, high = (float(np.quantile(levels, share)) for share in (0.1, 0.9))
    third = count // 6 * 2  # an even number: the median of an odd one of what alternates is one of its two levels
    progress = median(levels[:third]) - median(levels[-third:])
    if high - low < min_swing * abs(high + low) / 2 or abs(progress) > max_progress * (high - low) or low <= 0:
        return None
    time = np.arange(count)
    flat = levels - np.polyval(np.polyfit(time, levels, 1), time)
    # Twice as many frequencies as points have: a period need not fit into the record a whole number of times.
    power = 2 * np.abs(np.fft.rfft(flat, 2 * count)) ** 2 / (count * max(float(np.square(flat).sum()), 1e-300))
    power[-1] /= 2  # the fastest frequency is its own mirror image
    place = int(np.argmax(power))
    share = min(1.0, float(power[place]))
    if place < 2 * MIN_CYCLES or share < min_power or _chance(share, count // 2) > max_chance:
        return None
    return low, high, place / 2


def _chance(share: float, frequencies: int) -> float:
    """Return an upper bound of the probability that the largest of so many frequencies of pure noise holds that share."""
    return 2 * frequencies * max(0.0, 1 - share) ** (frequencies - 1)


def _of_turns(values: Floats, min_swing: float) -> Oscillation | None:
    """Return how the turning points of a smooth curve go up and down, as those of a short log; None of one that is noisy."""
    starts, levels = parts_of(values, RESOLUTIONS[0])
    swing = UNCUT_SHARE * min_swing
    threshold = max(swing * median(levels[len(levels) // 2 :]), MIN_DEVIATIONS * difference_noise(levels))
    rows = _turning_points(levels, threshold)
    few_swings = _of_few(levels[rows], swing) if len(rows) >= 4 else None
    return replace(few_swings, first=int(starts[rows[few_swings.first]]), cycles=1.5) if few_swings is not None else None


def _turning_points(levels: Floats, min_swing: float) -> list[int]:
    """Return the rows where a curve turns, between which it goes `min_swing` far each time, the last one with them.

    >>> _turning_points(np.array([5.0, 3.0, 3.1, 4.0, 2.0, 2.1, 3.5]), 0.8)
    [0, 1, 3, 4, 6]
    """
    rows, far = [0], 0  # where it turned, and the farthest since then
    for row in range(1, len(levels)):
        way = np.sign(levels[far] - levels[rows[-1]])
        if way * (levels[far] - levels[row]) >= min_swing and far != rows[-1]:
            rows.append(far)
            far = row
        elif abs(levels[row] - levels[rows[-1]]) > abs(levels[far] - levels[rows[-1]]):
            far = row
    return [*rows, far] if far != rows[-1] and abs(levels[far] - levels[rows[-1]]) >= min_swing else rows


def _of_few(values: Floats, min_swing: float) -> Oscillation | None:
    """Return how the last points of a short log go up and down, three swings in a row at least, each wide."""
    moves = np.diff(values)[-3:]
    level = float(np.mean(values[-4:]))
    wide = bool((np.abs(moves) >= 0.85 * min_swing * level).all()) and moves[0] * moves[1] < 0 and moves[1] * moves[2] < 0
    stays = abs(values[-4:-2].mean() - values[-2:].mean()) < 0.5 * float(np.abs(moves).max())
    if not (wide and stays and values.min() > 0 and moves[-1] > 0):
        return None
    return Oscillation(len(values) - 4, math.nan, float(values[-4:].min()), float(values[-4:].max()))
