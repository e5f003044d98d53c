"""Spikes and growth: points above their surroundings, flags grouped to incidents, levels that end far above what they were."""

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
"""A jump by no more units of the last decimal that a log writes may be one of rounding."""

MIN_POINTS_OF_END = 5
"""With fewer points the end is a single one, which must lie the square of the ratio above the lowest."""

MAX_POINTS_LAST_ALONE = 10
"""Up to so many points the last one alone will do where it lies the square of the ratio above the others: no more may come."""

START_LEVELS = 2
"""The first levels that are never a growth by themselves: the way from a start at nearly zero to the ordinary size."""


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
    """Return the lowest of the values before each, infinity before the first, shape (N,)."""
    lowest = np.empty(len(values))
    lowest[:1] = np.inf
    np.minimum.accumulate(values[:-1], out=lowest[1:])
    return lowest


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


def _over(values: Floats, before: Floats) -> Floats:
    """Return each value over the level before it, 0 where that is not positive, shape (N,)."""
    return by_blocks(lambda block, low: np.where(low > 0, block / low, 0.0), values, before)


def _noise_of_the_rest(values: Floats, rest: Mask) -> tuple[float, float]:
    """Return the noise of a curve without some of its points, and the same as a share of the level; 0 of too few points."""
    if len(values) < ENOUGH_FOR_NOISE:
        return 0.0, 0.0
    return noise_without_peaks(values, rest), noise_without_peaks(np.log(values), rest) if values.min() > 0 else 0.0


def _highest_peaks(above: Floats, min_ratio: float, *, max_share: float = 0.25) -> Mask:
    """Return which points are peaks, the highest where they are more than a share of all.

    Two peaks among a dozen points touch most second differences, and would hide behind the noise that they seem to be.

    Args:
        above: Each over the level before, shape (N,).
        min_ratio: Of a peak.
        max_share: Share of the points that may be left out.
    """
    is_peak, max_peaks = above > min_ratio, int(max_share * len(above))
    peaks = above[is_peak]
    if len(peaks) > max_peaks:
        peaks.partition(len(peaks) - max(max_peaks, 1))
        is_peak = above >= (peaks[-max_peaks] if max_peaks else np.inf)
        if is_peak.sum() > max_peaks:  # some are equal
            is_peak[:] = False
            is_peak[np.argsort(-above)[:max_peaks]] = True
    return is_peak


def _held_by_two(values: Floats) -> Floats:
    """Return the higher of each point and the one before it: a level that two points in a row came down to."""
    return np.asarray(np.maximum(values, np.concatenate([values[:1], values[:-1]])))


class Incident(Struct, frozen=True):
    """A group of flags.

    Attributes:
        first: Index of the first flag.
        last: Index of the last flag.
        is_incident: Whether it lasts or is strong; otherwise it is isolated.
        is_open: Whether the record ends before the quiet that would close it.
        core: Indexes of the flags that make it last or strong; none where it is isolated.
        lasts: Whether some of them are close to each other; strong ones alone need not be.
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
    """Return an incident as an isolated one where the points around it, each for itself, often stand out about as far.

    Args:
        incident: An event of these points.
        excess: How far each point stands above those before it, over their spread, shape (T,).
        flags: Points that stand out; three of `among` in a row belong to an event, and not to the noise, as does the highest
            point of those that make the incident one; so do those around them.
        beyond: The event must stand out so many times as far as the `usual` percentile of the noise.
        points: How many points before the event tell the noise, together with those inside it.
        later: How many points after it do.
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


def sustained_growth(values: Floats, *, min_ratio: float, min_errors: float = 4.0) -> SustainedGrowth | None:
    """Return how a positive quantity has grown to its end, None where it has not or is back.

    The curve is reduced to medians of equal parts. The end is the middle of its last three levels, of few points the lower of the
    last two. It must lie above every level of a part that goes from the beginning to some level on, by `min_ratio` above their
    median and, where the noise is known, by `min_errors` standard errors; of fewer points above their highest. Of few points the
    last one alone will do, as `MAX_POINTS_LAST_ALONE` says.

    Args:
        values: Positive and finite, in the order of steps, shape (N,).
        min_ratio: Of the end to what was before.
        min_errors: Of the logarithm of that ratio.
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
    """Return the growth from the first `count` levels to the end, made of the last `width`."""
    lowest = float(levels[:count].min())
    near = np.flatnonzero(levels[: len(levels) - width] < np.sqrt(lowest * end))
    return SustainedGrowth(int(starts[near[-1] + 1 if near.size else 0]), median(levels[:count]), lowest, end)


# How a curve loses part of what it had gained, stays so for a while, and comes back.
class PassingRise(Struct, frozen=True):
    """A rise that is over.

    Attributes:
        first: First row that stands above half of the way from the level before to the peak.
        last: Last such row.
        peak: Row of the highest value between the two.
        low: Level before, the lowest median of three points so far.
        lost: Share of the fall from the highest of the first three points to that level that the rise took back.
    """

    first: int
    last: int
    peak: int
    low: float
    lost: float


def passing_rise(values: Floats, *, min_points: int = 3, min_share: float = 0.1) -> PassingRise | None:
    """Return the largest rise of a curve that came back by more than half, None where there is none.

    A curve is held against its own lowest level so far, in medians of three points; the rise is the stretch around the largest
    excess over it that stays above half of that excess. It counts where the curve up to the end of that stretch ends
    above its lowest level for good (`sustained_rise`), by `CLEAR_DEVIATIONS`: what anybody would have said who looked then.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_points: Least points of the stretch; a single evaluation or batch makes no level.
        min_share: Least rise over the level before.
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
