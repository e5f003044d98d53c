"""Spikes and growth: points above their surroundings, flags grouped to incidents, and final levels far above earlier ones."""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.run.blocks import by_blocks
from ckaudit.run.medians import median, medians_of_three
from ckaudit.run.rises import CLEAR_DEVIATIONS, sustained_rise
from ckaudit.run.robust import BLOCKS, ENOUGH_FOR_NOISE, difference_noise, least_decimal_step, noise_without_peaks, parts_of
from ckaudit.run.series import Floats, Mask, Steps

ROUNDING_UNITS = 3.0
"""A jump by at most this many units of the last logged decimal may be rounding."""

MIN_POINTS_OF_END = 5
"""With fewer points the end is a single one, which must exceed the lowest by the square of the ratio."""

MAX_POINTS_LAST_ALONE = 10
"""Up to this many points, the last one alone suffices if it exceeds the others by the square of the ratio: no more may follow."""

SOON, MIN_FALL = 0.05, 0.25
"""A jump that is half gone within this share of the steps did the run no harm, if the curve ends so far below its first value."""

START_LEVELS = 2
"""The first levels never count as growth by themselves, because a quantity may start near zero."""


def recovers_soon(steps: Steps, values: Floats, since: int, level: float, peak: float, *, soon: float = SOON) -> bool:
    """Tell whether half of a jump is gone within a share of all steps, and the curve ends `MIN_FALL` below its first value.

    Args:
        steps: Shape (N,).
        values: Finite, shape (N,).
        since: Step at which the jump began.
        level: What it rose from.
        peak: What it rose to.
        soon: That share.
    """
    first = int(np.searchsorted(steps, since))
    worst = first + int(np.argmax(values[first:] >= peak))
    if len(values) < worst + 3:
        return False
    after = medians_of_three(values[worst:])[1:-1]
    back = np.flatnonzero(after < (peak + level) / 2)
    is_soon_back = len(back) > 0 and bool(steps[worst + back[0]] - since < soon * steps[-1])
    return is_soon_back and median(values[-max(3, len(values) // 10) :]) < (1 - MIN_FALL) * values[0]


def largest_rise(values: Floats, width: int, *, max_width: int = 50) -> float:
    """Return the largest rise of a curve within `width` points; 0 where the curve is not twice as long.

    >>> largest_rise(np.array([3.0, 2.0, 2.5, 1.0, 1.2, 1.1]), 2)
    0.5
    """
    width = min(width, max_width)
    if len(values) < 2 * width:
        return 0.0
    return max(float((values[apart:] - values[:-apart]).max()) for apart in range(1, width + 1))


def passing_peaks(
    values: Floats, *, min_ratio: float = 1.5, min_deviations: float = 8.0, given_back: float = 0.5
) -> list[tuple[int, int, float]]:
    """Return first row, last row and previous level of each stretch that stands above the levels before and after it.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_ratio: Smallest ratio to the lowest level before.
        min_deviations: Smallest distance from it in standard deviations of the noise, if there are enough points to know it; for
            a positive curve also on a log scale, because the noise of a loss is proportional to its level.
        given_back: Share of the jump that a later level has lost again.
    """
    if len(values) < 3 or values.min() < 0:  # a curve that crosses zero has no level to compare with
        return []
    middles = medians_of_three(values)
    middles[[0, -1]] = values[[0, -1]]
    before = _lowest_before(np.minimum(middles, _held_by_two(values)))
    noise, share = _noise_of_the_rest(values, ~_highest_peaks(_over(values, before), min_ratio))
    ratio = max(min_ratio, math.exp(min(min_deviations * share, 700.0)))
    high = _over(values, before) > ratio
    height = values - before
    high &= height > max(min_deviations * noise, ROUNDING_UNITS * least_decimal_step(values))
    height *= given_back
    high &= _lowest_before(middles[::-1])[::-1] < np.subtract(values, height, out=height)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], high, [False]]).astype(np.int8)))
    return [(int(first), int(end) - 1, float(before[first])) for first, end in zip(edges[::2], edges[1::2], strict=True)]


def _lowest_before(values: Floats) -> Floats:
    """Return the minimum of the values before each one, infinity before the first, shape (N,)."""
    lowest = np.empty(len(values))
    lowest[:1] = np.inf
    np.minimum.accumulate(values[:-1], out=lowest[1:])
    return lowest


def lone_peaks(values: Floats, *, min_ratio: float = 1.5, min_deviations: float = 8.0, around: int = 3) -> Steps:
    """Return the rows that stand above the levels both before and after them.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_ratio: Smallest ratio to the higher of the two levels.
        min_deviations: Smallest distance from it in standard deviations of the noise, if there are enough points to know it.
        around: Points on each side whose median is the level; at least one is needed.
    """
    noise = difference_noise(values) if len(values) >= ENOUGH_FOR_NOISE else 0.0
    rows = []
    for row in range(1, len(values) - 1):
        level = max(median(values[max(0, row - around) : row]), median(values[row + 1 : row + 1 + around]))
        if level > 0 and values[row] > min_ratio * level and values[row] - level > min_deviations * noise:
            rows.append(row)
    return np.array(rows, np.int64)


def _over(values: Floats, before: Floats) -> Floats:
    """Return the ratio of each value to the level before it, 0 if that is not positive, shape (N,)."""
    return by_blocks(lambda block, low: np.where(low > 0, block / low, 0.0), values, before)


def _noise_of_the_rest(values: Floats, rest: Mask) -> tuple[float, float]:
    """Return the noise of a curve without some of its points, absolute and as a share of the level; 0 for too few points."""
    if len(values) < ENOUGH_FOR_NOISE:
        return 0.0, 0.0
    return noise_without_peaks(values, rest), noise_without_peaks(np.log(values), rest) if values.min() > 0 else 0.0


def _highest_peaks(above: Floats, min_ratio: float, *, max_share: float = 0.25) -> Mask:
    """Return which points are peaks: at most a share of all, the highest first.

    Two peaks among a dozen points touch most second differences. Unless they are left out, the noise estimate would hide them.

    Args:
        above: Ratio of each point to the level before, shape (N,).
        min_ratio: Smallest ratio of a peak.
        max_share: Largest share of points that may be peaks.
    """
    is_peak, max_peaks = above > min_ratio, int(max_share * len(above))
    peaks = above[is_peak]
    if len(peaks) > max_peaks:
        peaks.partition(len(peaks) - max(max_peaks, 1))
        is_peak = above >= (peaks[-max_peaks] if max_peaks else np.inf)
        if is_peak.sum() > max_peaks:  # ties
            is_peak[:] = False
            is_peak[np.argsort(-above)[:max_peaks]] = True
    return is_peak


def _held_by_two(values: Floats) -> Floats:
    """Return the maximum of each point and the one before it: the level that two points in a row stay below."""
    return np.asarray(np.maximum(values, np.concatenate([values[:1], values[:-1]])))


class Incident(Struct, frozen=True):
    """A group of flags.

    Attributes:
        first: Index of the first flag.
        last: Index of the last flag.
        is_incident: Whether the group is lasting or strong; otherwise it is isolated.
        is_open: Whether the log ends before enough quiet points close the group.
        core: Indexes of the flags that make it lasting or strong; empty if it is isolated.
        lasts: Whether some of its flags are close together; strong ones alone need not be.
    """

    first: int
    last: int
    is_incident: bool
    is_open: bool
    core: tuple[int, ...] = ()
    lasts: bool = False


def incidents(flags: Mask, strong: Mask, *, quiet: int, lasting: int = 3, among: int = 5) -> list[Incident]:
    """Group flags that have fewer than `quiet` unflagged points between them.

    Args:
        flags: Points that stand out, shape (T,).
        strong: Flags that are an incident by themselves, shape (T,).
        quiet: Unflagged points that end an incident.
        lasting: Flags among `among` points in a row that make an incident.
        among: See `lasting`.
    """
    index = np.flatnonzero(flags)
    if not len(index):
        return []
    groups = np.split(index, np.flatnonzero(np.diff(index) > quiet) + 1)
    return [_incident(group, strong, len(flags), quiet, lasting, among) for group in groups]


def _incident(group: "np.ndarray", strong: Mask, total: int, quiet: int, lasting: int, among: int) -> Incident:
    core = strong[group]
    near = np.flatnonzero(group[lasting - 1 :] - group[: max(0, len(group) - lasting + 1)] < among)
    core[(near[:, None] + np.arange(lasting)).reshape(-1)] = True
    first, last = int(group[0]), int(group[-1])
    return Incident(first, last, bool(core.any()), total - 1 - last < quiet, tuple(group[core].tolist()), bool(len(near)))


def as_one_of_many(
    incident: Incident,
    excess: Floats,
    flags: Mask,
    *,
    beyond: float,
    points: int,
    later: int = 0,
    usual: float = 98.0,
    among: int = 5,
) -> Incident:
    """Return an incident as isolated if single points around it often stand out about as far.

    Args:
        incident: The incident.
        excess: Distance of each point from those before it, relative to their spread, shape (T,).
        flags: Points that stand out. Three flags among `among` points in a row, the highest core point of the incident, and the
            points around them belong to an event and not to the noise.
        beyond: Multiple of the `usual` percentile of the noise that the incident must reach.
        points: Number of points before the incident that show the noise, together with those inside it.
        later: Number of points after the incident that show the noise.
        usual: Percentile of the noise that is compared.
        among: See `flags`.
    """
    if not incident.is_incident:
        return incident
    peak = max(incident.core, key=lambda place: np.nan_to_num(excess[place], nan=-np.inf, posinf=np.inf))
    window = slice(max(0, incident.first - points), incident.last + 1 + later)
    part = flags[window] & (np.convolve(flags[window], np.ones(among), "same") >= 3)
    part[peak - window.start] = True
    events = np.convolve(part, np.ones(2 * among + 1), "same") > 0
    noise = excess[window][~events & np.isfinite(excess[window])]
    if len(noise) < among or excess[peak] >= beyond * np.percentile(noise, usual):
        return incident
    return replace(incident, is_incident=False)


class SustainedGrowth(Struct, frozen=True):
    """A final level that is many times the levels before it, and above all of them.

    Attributes:
        onset: First row from which all levels are nearer to the end than to the lowest level, on a log scale.
        low: Median level before.
        lowest: Lowest level before.
        end: Final level.
    """

    onset: int
    low: float
    lowest: float
    end: float


def sustained_growth(values: Floats, *, min_ratio: float, min_errors: float = 4.0) -> SustainedGrowth | None:
    """Return how a positive quantity has grown by its end; None if it has not or has come back.

    The curve is reduced to medians of equal parts. The end is the median of the last three levels, or the lower of the last two
    if there are few points. It must lie above all levels from the beginning to some level, and reach `min_ratio` times their
    median. If the noise is known, it must also exceed the median by `min_errors` standard errors; if not, the highest level takes
    the place of the median. With few points the last one alone suffices, as `MAX_POINTS_LAST_ALONE` says.

    Args:
        values: Positive and finite, in the order of steps, shape (N,).
        min_ratio: Smallest ratio of the end to the levels before.
        min_errors: Smallest logarithm of that ratio in standard errors.
    """
    if len(values) <= START_LEVELS:
        return None
    starts, levels = parts_of(values, BLOCKS)
    knows_noise = len(levels) >= ENOUGH_FOR_NOISE
    width = 3 if knows_noise else 2 if len(levels) >= MIN_POINTS_OF_END else 1
    end = float(median(levels[-width:]) if knows_noise else levels[-width:].min())
    others = levels[:-1]
    if len(levels) <= MAX_POINTS_LAST_ALONE and levels[-1] >= max(min_ratio**2 * median(others), min_ratio * others.max()):
        return _grown(starts, levels, len(others), 1, float(levels[-1]))
    if len(levels) < MIN_POINTS_OF_END and end < min_ratio**2 * levels[:START_LEVELS].min():
        return None
    noise = difference_noise(np.log(levels)) if knows_noise else 0.0
    for count in range(START_LEVELS, len(levels) - width + 1):
        highest = float(levels[:count].max())
        low = median(levels[:count]) if knows_noise else highest
        errors = noise * np.sqrt(1 / count + 1 / width)
        if end > highest and end >= min_ratio * low and np.log(end / low) > min_errors * errors:
            return _grown(starts, levels, count, width, end)
    return None


def _grown(starts: Steps, levels: Floats, count: int, width: int, end: float) -> SustainedGrowth:
    """Return the growth from the first `count` levels to the end, which consists of the last `width` levels."""
    lowest = float(levels[:count].min())
    near = np.flatnonzero(levels[: len(levels) - width] < np.sqrt(lowest * end))
    return SustainedGrowth(int(starts[near[-1] + 1 if near.size else 0]), median(levels[:count]), lowest, end)


# Rises that last for a while and come back:
class PassingRise(Struct, frozen=True):
    """A rise that has come back.

    Attributes:
        first: First row above the midpoint between the level before and the peak.
        last: Last row above it.
        peak: Row of the highest value between the two rows.
        low: Level before: the lowest median of three points up to the peak.
        lost: The rise as a share of the fall from the highest of the first three points to that level.
    """

    first: int
    last: int
    peak: int
    low: float
    lost: float


def passing_rise(values: Floats, *, min_points: int = 3, min_share: float = 0.1) -> PassingRise | None:
    """Return the largest rise of a curve that came back by more than half; None if there is none.

    The curve is compared with its own lowest level so far, in medians of three points. The rise is the stretch around the largest
    excess that stays above half of it. It counts if the curve up to the end of that stretch shows a `sustained_rise` by
    `CLEAR_DEVIATIONS`, so that it would have been reported at that time.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_points: Smallest number of points of the stretch; a single evaluation or batch makes no level.
        min_share: Smallest rise relative to the level before.
    """
    if len(values) < 2 * min_points:
        return None
    smooth = medians_of_three(values)
    lowest = np.minimum.accumulate(smooth)
    excess = smooth - lowest
    peak = int(np.argmax(excess))
    low, half = float(lowest[peak]), float(lowest[peak] + excess[peak] / 2)
    below = np.flatnonzero(smooth <= half)
    before, after = below[below < peak], below[below > peak]
    if not len(before) or not len(after) or smooth[-1] > half:
        return None
    first, last = int(before[-1]) + 1, int(after[0]) - 1
    gained = float(values[:3].max()) - low
    if last - first + 1 < min_points or gained <= 0:
        return None
    if sustained_rise(values[: last + 1], min_share=min_share, min_deviations=CLEAR_DEVIATIONS) is None:
        return None
    top = first + int(np.argmax(values[first : last + 1]))
    return PassingRise(first=first, last=last, peak=top, low=low, lost=float(excess[peak]) / gained)


def cluster_around(rows: Steps, place: int, *, max_gap: int = 3) -> Steps:
    """Return those of some rows that lie together with one of them, each at most so many rows from the next.

    Args:
        rows: Rising, shape (N,).
        place: Index of the one.
        max_gap: Largest distance of two neighbours.

    >>> cluster_around(np.array([4, 5, 20, 22, 23, 40]), 3).tolist()
    [20, 22, 23]
    """
    group = np.append(0, np.cumsum(np.diff(rows) > max_gap))
    return np.asarray(rows[group == group[place]])
