"""Detection of oscillation: one period that holds most of a curve's variance, at any number of points."""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.run.medians import median
from ckaudit.run.robust import difference_noise, parts_of, rank_trend
from ckaudit.run.series import Floats

RESOLUTIONS = (24, 96, 384, 1536, 6144)
"""Numbers of parts that a curve is reduced to, one after the other: few show slow swings, many show fast ones."""

MIN_POINTS = 8
"""Points from which a periodogram is meaningful; shorter curves must swing widely."""

MIN_DEVIATIONS = 8.0
"""Noise deviations that the swings of a curve without a period must exceed."""

UNCUT_SHARE = 0.75
"""A swing between medians of parts is smaller than one between points, because a median cuts the tip of a turn."""

ALIASED = 1.5
"""Parts longer than half a period show a slower one with smaller swings; finer parts show more cycles than this multiple."""

SHORT_SHARE = 0.85
"""Share of the smallest swing that each of three swings in a row must reach: the tip of a turn may lie between two points."""

MIN_CYCLES = 3
"""Fewer cycles are a valley or a hump."""

CYCLES_FOR_A_TREND, STEADY_FALL = 5, -2.2
"""From so many cycles on, means that fall by so many standard deviations of pure noise (Mann-Kendall) are progress, as where each
epoch has the same batches in the same order."""


class Oscillation(Struct, frozen=True):
    """A part of a curve that goes up and down without net progress.

    Attributes:
        first: First row.
        cycles: Number of cycles.
        low: Lower level.
        high: Upper level.
    """

    first: int
    cycles: float
    low: float
    high: float


def oscillation(
    values: Floats, *, min_swing: float = 0.2, min_power: float = 0.5, max_chance: float = 3e-3, max_progress: float = 0.5
) -> Oscillation | None:
    """Return how a curve oscillates after its first fall; None if it does not.

    One frequency must hold the share `min_power` of the variance (a sine wave holds all in one, a square wave 81 %, a sawtooth
    wave 61 %). Noise must reach that share with a probability of at most `max_chance` (Fisher's g test, 1929).

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_swing: Distance from the lower level to the upper one, as a share of the middle.
        min_power: Smallest share of the variance around a straight line.
        max_chance: Largest probability of such a share by chance.
        max_progress: Largest change from the first third to the last, as a share of the swing; half of it if cycles fall.
    """
    if len(values) < 4:
        return None
    if len(values) < MIN_POINTS:
        return _of_few(values, min_swing)
    max_chance /= 1 + sum(len(values) >= 2 * parts for parts in RESOLUTIONS)  # one test per resolution
    found: Oscillation | None = None
    for parts in RESOLUTIONS:
        starts, levels = parts_of(values, parts)
        reached = np.flatnonzero(levels <= levels[len(levels) // 2 :].max())
        rest = int(reached[0]) if len(reached) else 0
        swing = _of_one_period(levels[rest:], min_swing, min_power, max_chance, max_progress)
        if swing is not None:
            low, high, cycles = swing
            if found is None or (cycles > ALIASED * found.cycles and high - low > found.high - found.low):
                found = Oscillation(int(starts[rest]), cycles, low, high)
        if len(values) < 2 * parts:
            break
    return found or _of_turns(values, min_swing)


def _of_one_period(
    levels: Floats, min_swing: float, min_power: float, max_chance: float, max_progress: float
) -> tuple[float, float, float] | None:
    """Return lower level, upper level and number of cycles of levels that oscillate; None if they do not."""
    count = len(levels)
    if count < MIN_POINTS:
        return None
    low, high = (float(np.quantile(levels, share)) for share in (0.1, 0.9))
    third = count // 6 * 2  # even, because the median of an odd number of alternating values is one of their two levels
    progress = median(levels[:third]) - median(levels[-third:])
    if high - low < min_swing * abs(high + low) / 2 or abs(progress) > max_progress * (high - low) or low <= 0:
        return None
    time = np.arange(count)
    flat = levels - np.polyval(np.polyfit(time, levels, 1), time)
    # Twice as many frequencies, because the record need not hold a whole number of periods.
    power = 2 * np.abs(np.fft.rfft(flat, 2 * count)) ** 2 / (count * max(float(np.square(flat).sum()), 1e-300))
    power[-1] /= 2  # the Nyquist frequency has no mirror image
    place = int(np.argmax(power))
    share = min(1.0, float(power[place]))
    if place < 2 * MIN_CYCLES or share < min_power or _chance(share, count // 2) > max_chance:
        return None
    cycles = np.array([float(np.mean(cycle)) for cycle in np.array_split(levels, place // 2)])
    if progress > max_progress / 2 * (high - low) and len(cycles) >= CYCLES_FOR_A_TREND and rank_trend(cycles) < STEADY_FALL:
        return None
    return low, high, place / 2


def _chance(share: float, frequencies: int) -> float:
    """Return an upper bound of the probability that one of the frequencies of pure noise holds a share of the power."""
    return 2 * frequencies * max(0.0, 1 - share) ** (frequencies - 1)


def _of_turns(values: Floats, min_swing: float) -> Oscillation | None:
    """Return how the turning points of a smooth curve oscillate, like the points of a short log; None if the curve is noisy."""
    starts, levels = parts_of(values, RESOLUTIONS[0])
    swing = UNCUT_SHARE * min_swing
    threshold = max(SHORT_SHARE * swing * median(levels[len(levels) // 2 :]), MIN_DEVIATIONS * difference_noise(levels))
    rows = _turning_points(levels, threshold)
    few_swings = _of_few(levels[rows], swing) if len(rows) >= 4 else None
    return replace(few_swings, first=int(starts[rows[few_swings.first]]), cycles=1.5) if few_swings is not None else None


def _turning_points(levels: Floats, min_swing: float) -> list[int]:
    """Return the rows at which a curve turns after a move of at least `min_swing`, including the last one.

    >>> _turning_points(np.array([5.0, 3.0, 3.1, 4.0, 2.0, 2.1, 3.5]), 0.8)
    [0, 1, 3, 4, 6]
    """
    rows, far = [0], 0  # turning points, and the farthest row since the last one
    for row in range(1, len(levels)):
        way = np.sign(levels[far] - levels[rows[-1]])
        if way * (levels[far] - levels[row]) >= min_swing and far != rows[-1]:
            rows.append(far)
            far = row
        elif abs(levels[row] - levels[rows[-1]]) > abs(levels[far] - levels[rows[-1]]):
            far = row
    return [*rows, far] if far != rows[-1] and abs(levels[far] - levels[rows[-1]]) >= min_swing else rows


def _of_few(values: Floats, min_swing: float) -> Oscillation | None:
    """Return how the last points of a short log oscillate: in three wide swings in a row."""
    moves = np.diff(values)[-3:]
    level = float(np.mean(values[-4:]))
    wide = bool((np.abs(moves) >= SHORT_SHARE * min_swing * level).all()) and moves[0] * moves[1] < 0 and moves[1] * moves[2] < 0
    stays = abs(values[-4:-2].mean() - values[-2:].mean()) < 0.5 * float(np.abs(moves).max())
    if not (wide and stays and values.min() > 0 and moves[-1] > 0):
        return None
    return Oscillation(len(values) - 4, math.nan, float(values[-4:].min()), float(values[-4:].max()))
