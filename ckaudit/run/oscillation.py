"""Oscillation: one period that holds most of what moves in a curve, at any number of points."""

import math

import numpy as np
from msgspec import Struct

from ckaudit.run.robust import parts_of
from ckaudit.run.series import Floats

RESOLUTIONS = (24, 96, 384, 1536, 6144)
"""Parts that a curve is reduced to, one after the other: slow swings show in few, fast ones in many."""

MIN_POINTS = 8
"""Points of which a periodogram says anything; fewer must swing widely."""

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
    for parts in RESOLUTIONS:
        starts, levels = parts_of(values, parts)
        rest = _after_first_fall(levels)
        found = _of_one_period(levels[rest:], min_swing, min_power, max_chance, max_progress)
        if found is not None:
            low, high, cycles = found
            return Oscillation(int(starts[rest]), cycles, low, high)
        if len(values) <= parts:
            break
    return None


def _after_first_fall(levels: Floats) -> int:
    """Return the row from which a curve is no higher than it gets in its second half."""
    reached = np.flatnonzero(levels <= levels[len(levels) // 2 :].max())
    return int(reached[0]) if len(reached) else 0


def _of_one_period(
    levels: Floats, min_swing: float, min_power: float, max_chance: float, max_progress: float
) -> tuple[float, float, float] | None:
    """Return lower level, higher level and cycles of levels that oscillate."""
    count = len(levels)
    if count < MIN_POINTS:
        return None
    low, high = (float(np.quantile(levels, share)) for share in (0.1, 0.9))
    third = count // 3
    progress = float(np.median(levels[:third]) - np.median(levels[-third:]))
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


def _of_few(values: Floats, min_swing: float) -> Oscillation | None:
    """Return how the last points of a short log go up and down, three swings in a row at least, each wide."""
    moves = np.diff(values)[-3:]
    level = float(np.mean(values[-4:]))
    wide = bool((np.abs(moves) >= 0.85 * min_swing * level).all()) and moves[0] * moves[1] < 0 and moves[1] * moves[2] < 0
    stays = abs(values[-4:-2].mean() - values[-2:].mean()) < 0.5 * float(np.abs(moves).max())
    if not (wide and stays and values.min() > 0 and moves[-1] > 0):
        return None
    return Oscillation(len(values) - 4, math.nan, float(values[-4:].min()), float(values[-4:].max()))
