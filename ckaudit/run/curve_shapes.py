"""Curve shapes that a playbook calls bad, at any number of points: a lasting change of level, a hump, a steady slide.

Many points are reduced to the medians of equal parts, so that 15, 60 and 600 points of one curve are judged alike.
"""

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.rises import PRIOR_NOISE, sustained_rise
from ckaudit.run.robust import BLOCKS, ENOUGH_FOR_NOISE, MEDIAN_STANDARD_ERROR_FACTOR, difference_noise, parts_of, rank_trend
from ckaudit.run.series import Floats, Steps
from ckaudit.run.spikes import lone_peaks

LARGE_RISE = 0.5
"""Share of the level from which a rise needs only three standard errors, if the two ends hardly overlap."""
BEGUN_SHARE = 0.1
"""Share of a rise at which it has begun; rows below it are still at the low level."""
MIN_STEADY_DEVIATIONS = 2.5
"""Standard deviations of pure noise, by ranks, from which a slide is steady: one in a hundred and sixty is so by chance."""
MAX_SETTLED_RATIO = 1.2
"""A curve has settled where it is at most this many times its maximum before; a warm-up satisfies that at each point."""


class Turn(Struct, frozen=True):
    """The bad part of a curve, with the levels before and in it.

    Attributes:
        first: First row of the bad part.
        last: Last row of it.
        before: Level before the bad part.
        after: Level in the bad part.
    """

    first: int
    last: int
    before: float
    after: float


def levels_of(values: Floats) -> tuple[Floats, list[Steps]]:
    """Return the medians of at most `BLOCKS` equal parts, and the rows of each."""
    starts, levels = parts_of(values, BLOCKS)
    return levels, np.split(np.arange(len(values)), starts[1:])


def lasting_rise(values: Floats, *, share: float, share_alone: float | None = None) -> Turn | None:
    """Return the rise of a curve above its lowest level before, if it lasts to the end of the curve; else None.

    Args:
        values: Finite, shape (N,).
        share: Smallest rise that matters, relative to the lowest level.
        share_alone: The same where there are too few points to know the noise; default: the same.
    """
    alone = share if share_alone is None else share_alone
    few = len(values) < ENOUGH_FOR_NOISE  # few points do not show their noise: assume a tenth of the level
    rise = sustained_rise(
        values,
        min_share=alone if few else share,
        min_share_alone=2 * alone,
        min_deviations=4.5 if few else 6.0,
        prior=0.1 if few else PRIOR_NOISE,
        is_a_loss=False,
    )
    if rise is not None and not _begins_at_a_dip(values[: rise.onset], (rise.low + rise.end) / 2):
        has_begun = values[rise.onset :] > rise.low + BEGUN_SHARE * (rise.end - rise.low)
        return Turn(rise.onset + int(np.argmax(has_begun)), len(values) - 1, rise.low, rise.end)
    return _rise_of_thirds(values, share, max(share, LARGE_RISE))


def _begins_at_a_dip(before: Floats, middle: float) -> bool:
    """Tell whether exactly one of several points before a rise lies below a middle level; one point makes no level."""
    return len(before) > 1 and int((before < middle).sum()) == 1


def _rise_of_thirds(values: Floats, share: float, large: float) -> Turn | None:
    """Return the rise of a noisy curve from its first third to its last, if the last sixth still holds it.

    The rise must exceed five standard errors. Three suffice for a rise by the share `large` if three quarters of the last third
    lie above three quarters of the first.
    """
    third = len(values) // 3
    if len(values) < ENOUGH_FOR_NOISE:
        return None
    before, after = median(values[:third]), median(values[-third:])
    error = difference_noise(values) * float(np.sqrt(2 / third)) * MEDIAN_STANDARD_ERROR_FACTOR
    first, last = values[:third], values[-third:]
    is_large = after > (1 + large) * before and np.quantile(last, 0.25) > np.quantile(first, 0.75)
    enough = before + max(share * before, (3 if is_large else 5) * error)
    if before <= 0 or after <= enough or median(values[-max(2, third // 2) :]) <= enough:
        return None
    return Turn(third, len(values) - 1, before, after)


def lasting_change(values: Floats, *, share: float) -> Turn | None:
    """Return the lasting fall of a positive curve by a share, or a rise by the inverse ratio; None if there is neither."""
    return lasting_fall(values, share=share) or lasting_rise(values, share=share / (1 - share))


def lasting_fall(values: Floats, *, share: float, share_alone: float | None = None) -> Turn | None:
    """Return the fall of a positive curve that lasts to its end: the rise of its inverse, so that halving counts like doubling.

    Args:
        values: Finite and not negative, shape (N,); values below a thousandth of the highest count as that.
        share: Smallest fall that matters, relative to the highest level.
        share_alone: The same where there are too few points to know the noise; default: the same.

    >>> lasting_fall(np.array([10.0, 10, 10, 4, 4, 4]), share=0.2)
    Turn(first=3, last=5, before=10.0, after=4.0)
    """
    highest = float(np.max(values, initial=0.0))
    if highest <= 0:
        return None
    inverse = 1 / np.maximum(values, 1e-3 * highest)
    alone = share if share_alone is None else share_alone
    turn = lasting_rise(inverse, share=share / (1 - share), share_alone=alone / (1 - alone))
    if turn is None:
        return None
    return Turn(turn.first, turn.last, _rounded(1 / turn.before), _rounded(1 / turn.after))


def shift(values: Floats, *, min_change: float) -> Turn | None:
    """Return a change of a curve's level by `min_change` in its own unit that lasts to the end, up or down; else None.

    The curve may cross zero. The last third is compared with the first: either their medians differ by more than five standard
    errors, or all of one lies beyond all of the other by `min_change`.
    """
    third = len(values) // 3
    if third < 1:
        return None
    first, last = values[:third], values[-third:]
    before, after = median(first), median(last)
    noise = difference_noise(values) if len(values) >= ENOUGH_FOR_NOISE else 0.0
    apart = max(float(last.min() - first.max()), float(first.min() - last.max()))
    if abs(after - before) < min_change or (apart < min_change and abs(after - before) < 5 * noise * float(np.sqrt(2 / third))):
        return None
    near = np.flatnonzero(np.abs(values - before) < abs(after - before) / 2)
    begin = int(near[-1]) + 1 if near.size else 0  # none is near if the distance overflows
    return Turn(min(begin, len(values) - 1), len(values) - 1, before, after)


def lasting_turn(values: Floats, *, share: float) -> Turn | None:
    """Return the part of a positive curve after its lowest level if all of it stays a share above that level; else None.

    For quantities with little noise. At least a quarter of the levels, and at least two, must follow the lowest.
    """
    levels, _ = levels_of(values)
    low = float(levels.min())
    lowest = int(np.flatnonzero(levels <= (1 + share / 4) * low)[-1]) if low > 0 else len(levels)
    behind = levels[lowest + 1 + len(levels) // 8 :]  # skip the levels in which the rise takes place
    noise = difference_noise(levels[len(levels) // 2 :]) if len(levels) >= ENOUGH_FOR_NOISE else 0.0
    if len(behind) < max(2, len(levels) // 4) or behind.min() < low + max(share * low, 2.5 * noise):
        return None
    near = np.flatnonzero(values < (low + float(behind.min())) / 2)
    return Turn(int(near[-1]) + 1 if near.size else 0, len(values) - 1, low, float(behind[-1]))


def warms_up_again(values: Floats) -> Turn | None:
    """Return the second warm-up of a learning rate: it drops from its peak at once and climbs again, a single time; else None.

    Cosine restarts fall slowly and jump up, a decay does not come back, and cycles repeat.
    """
    levels, parts = levels_of(values)
    peak, reach = np.maximum.accumulate(levels), -(-len(levels) // 8)
    begun = int(np.argmax(levels >= 0.9 * levels.max()))
    low = np.flatnonzero(levels[begun:] <= 0.25 * peak[begun:]) + begun
    low = low[low < len(levels) - 2]
    if not len(low) or low[-1] - low[0] >= len(low) or levels.max() <= 0:  # never low, or more than once
        return None
    first, before = int(low[0]), float(levels[max(0, low[0] - reach) : low[0]].max(initial=0.0))
    later = levels[low[-1] + 1 :]
    climbs = later[0] < 0.8 * before and later.max() >= 0.5 * before
    if before < 0.9 * peak[first] or not climbs:
        return None
    return Turn(int(parts[first][0]), len(values) - 1, float(peak[first]), float(levels[low].min()))


def hump(values: Floats, *, times: float) -> Turn | None:
    """Return the part in which a positive curve is `times` its levels before and after; None if there is none."""
    levels, parts = levels_of(values)
    lowest_before = np.minimum.accumulate(levels)[:-2]
    lowest_after = np.minimum.accumulate(levels[::-1])[::-1][2:]
    if len(levels) >= 3:
        surroundings = np.maximum(lowest_before, lowest_after)
        high = np.flatnonzero((surroundings > 0) & (levels[1:-1] > times * surroundings)) + 1
        if len(high):
            peak = int(high[np.argmax(levels[high])])
            level = float(surroundings[peak - 1])
            rows = np.concatenate([parts[place] for place in high])
            rows = rows[values[rows] > times * level]
            return Turn(int(rows[0]), int(rows[-1]), level, float(values[rows].max()))
    return None


def slide(values: Floats, *, times: float, slowing: float = 0.6) -> Turn | None:
    """Return the second half of a positive curve that rises by `times` in it without slowing down; else None.

    A quantity that is learnt or warms up changes fast at first and then slows down. A quantity that diverges keeps its relative
    rate.

    Args:
        values: Finite and positive, shape (N,).
        times: Rise over the second half.
        slowing: A curve has not slowed down if its rate in the second half is at least this share of that in the first.
    """
    levels, parts = levels_of(values)
    if len(levels) < 4 or levels.min() <= 0:
        return None
    smooth = _middles(np.log(levels))
    half = len(smooth) // 2
    since_lowest = levels[int(np.argmin(levels)) :]
    is_steady = len(since_lowest) >= 5 and rank_trend(since_lowest) > MIN_STEADY_DEVIATIONS
    early, late = smooth[half] - smooth[0], smooth[-1] - smooth[half]
    rates = early / half, late / (len(smooth) - 1 - half)
    if not is_steady or late < np.log(times) or rates[1] < slowing * rates[0]:
        return None
    return Turn(int(parts[half][0]), len(values) - 1, float(levels[half]), float(levels[-1]))


def surge(values: Floats, *, times: float) -> Turn | None:
    """Return where a positive curve that had settled exceeds `times` its maximum before; else None.

    A curve has settled where it does not rise over two levels (over one level if there are few points). A curve that still rises
    slightly counts too if the surge follows soon. A warm-up rises all the time, ever more slowly.
    """
    levels, parts = levels_of(values)
    highest, reach = np.maximum.accumulate(levels), max(2, len(levels) // 8)
    for place in np.flatnonzero(levels[1:] <= MAX_SETTLED_RATIO * highest[:-1]) + 1:
        rests = levels[place : place + (2 if len(values) >= ENOUGH_FOR_NOISE else 1)]
        is_flat = bool((rests <= 1.05 * highest[place - 1]).all())
        later = levels[place:] if is_flat else levels[place : place + 1 + reach]
        above = np.flatnonzero(later > times * highest[place])
        if highest[place] > 0 and len(above):
            rows = np.concatenate(parts[place + int(above[0]) :])
            rows = rows[values[rows] > times * highest[place]]
            return Turn(int(rows[0]), len(values) - 1, float(highest[place]), float(values[rows].max()))
    return None


def spike(values: Floats, *, times: float) -> Turn | None:
    """Return where a positive curve that had settled jumps, for a while or at a single point; else None.

    A single point counts only after the first point that did not rise above those before it: a curve that climbs from the start
    is a warm-up.
    """
    turn = surge(values, times=times)
    if turn is not None:
        return turn
    is_settled = np.append(False, values[1:] <= MAX_SETTLED_RATIO * np.maximum.accumulate(values)[:-1])
    peaks = lone_peaks(values, min_ratio=times)
    peaks = peaks[peaks > (np.argmax(is_settled) if is_settled.any() else len(values))]
    if not len(peaks):
        return None
    worst = int(peaks[np.argmax(values[peaks])])
    return Turn(int(peaks[0]), int(peaks[-1]), median(values), float(values[worst]))


def _middles(levels: Floats) -> Floats:
    """Return levels with each inner one replaced by the median of itself and its neighbours; few levels stay as they are."""
    if len(levels) < ENOUGH_FOR_NOISE:
        return levels
    inner = np.median(np.lib.stride_tricks.sliding_window_view(levels, 3), axis=1)
    return np.concatenate([inner[:1], inner, inner[-1:]])


def _rounded(value: float) -> float:
    """Return a value without the last digits, which inverting twice makes inexact."""
    return float(f"{value:.12g}")
