"""How a curve ends above its own lowest level: a climb that goes on to the end, or a jump that lasts.

Two hypotheses about a curve are compared. Either it only ever falls, at any pace and with rests; or it falls up to some point,
from which on it stands higher, climbs in a straight line, or falls again from higher up. The likelihood ratio of the second over
the first says how sure the rise is (the first is the isotonic regression of Robertson, Wright & Dykstra 1988). Positive curves
are compared in logarithms, because noise shrinks with the loss. Few points show little of the noise; then the usual scatter of
logged losses (`PRIOR_NOISE`) stands in, and the size of the rise decides.
"""

import math
from bisect import insort

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.run.isotonic_regression import fits_after, isotonic_fits
from ckaudit.run.learning_curves import rise_likelihood_ratio
from ckaudit.run.medians import median
from ckaudit.run.robust import ENOUGH_FOR_NOISE, PARTS, parts_of, rank_trend, trimmed_noise
from ckaudit.run.series import Floats, Steps

PRIOR_NOISE = 0.02
"""Noise of a logged loss as a share of its level: public logs have 1 to 10 %, and this is nearer to the lower end."""

PRIOR_POINTS = 2.0
"""Weight of that prior, in points."""

POINTS_PER_LEVEL = 1.2
"""Degrees of freedom that each level of a fitted fall takes: between one for its height and two with its place."""

CLEAR_DEVIATIONS = 6.0
"""One in a hundred falling curves with noise of 20 % reaches this, whatever the size of the rise."""

HEAVY_NOISE = 0.2
"""Scatter, as a share of the level, above which only a clear rise counts. Of flat curves of 10 to 30 points with 30 % noise, a
third reach 3 deviations and fit a law of learning no better; one in fifteen reaches six."""

NEGLIGIBLE_SHARE = 1e-3
"""Share of the median level below which a curve is effectively zero; its logarithm would exaggerate such values."""

OVER_EARLIER_RISES = 1.1
"""A rise counts if it is a tenth larger than any earlier one that the curve took back."""

POINTS_FOR_A_LAW = 7
"""A law of learning takes a floor, a height, a pace and a form, a rise takes its place and its size: six parameters."""

MIN_LAW_RATIO = 6.0
"""Log likelihood ratio; two in a hundred falling curves with noise of 10 % reach it, none with noise of 3 %."""

ALLOWED_BY_LAW = 1.7
"""Deviations that a rise of few points may lack if no law of learning explains it."""

CLIMB = 1  # index of the straight climb in `fits_after`

ZOOM = 8
"""The last eighth of a long curve is examined once more by itself; 48 parts of it and more are 400 of the whole."""

MIN_LEVEL_POINTS = 3
"""Points that make a level; a single easy batch makes none."""

POINTS_FOR_A_LEVEL = 20
"""From this many points on, one easy batch makes no level; with fewer it may be all there is."""

STEEP_POINTS = 4
"""A loss falls fastest in its first points, where no second one lies near the lowest; later a single low one is a lucky batch."""

CORRELATED = 1.0
"""Standard errors, 1 / sqrt(N), above which the noise of neighbours is correlated, as in a moving average."""

ZOOM_DEVIATIONS = 6.0
"""Neighbouring points of a long log share batches and rates and scatter together: a rise of so few must stand out further."""


class Rise(Struct, frozen=True):
    """A final level that is higher than an earlier one.

    Attributes:
        lowest: Row of the middle of the earlier level.
        onset: First row of the higher level.
        low: The earlier level.
        end: The final level; for a straight climb, the level it has reached.
        deviations: Significance of the rise: the root of twice the log likelihood ratio.
        noise_is_known: Whether there are enough points to know the noise; if not, the size of the rise decides.
    """

    lowest: int
    onset: int
    low: float
    end: float
    deviations: float
    noise_is_known: bool

    @property
    def share(self) -> float:
        """The rise relative to the earlier level, infinite if that is not positive."""
        return (self.end - self.low) / self.low if self.low > 0 else math.inf


class _Split(Struct, frozen=True, order=True):
    """A row at which a curve may have turned, and how far it rises there."""

    deviations: float
    row: int
    width: int
    low: float
    end: float


def sustained_rise(
    values: Floats,
    *,
    min_share: float = 0.1,
    min_deviations: float = 4.7,
    min_share_alone: float = 0.5,
    prior: float = PRIOR_NOISE,
    is_a_loss: bool = True,
) -> Rise | None:
    """Return how a curve ends above its own lowest level; None if it does not.

    A single point makes no level, so the end, and the mean rise after the turn, count for at most twice the rise of the median
    and of the last three points. A rise no larger than an earlier one that was taken back does not count.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_share: Smallest rise over the lowest level; 1.5 times the range before it if the curve is not always positive.
        min_deviations: Smallest significance; three in a hundred falling curves with noise of 10 % reach it, none with 3 %.
        min_share_alone: Smallest share for a log of three or four points, whose end may be a single point.
        prior: Noise as a share of the level, used where few points show little of it.
        is_a_loss: Whether the curve falls like a learning curve in a healthy run, or may be any quantity.
    """
    if len(values) < 3:
        return None
    first = len(values) - len(values) // ZOOM
    with np.errstate(all="ignore"):
        rise = _rise_of_parts(values, min_share, min_deviations, min_share_alone, prior, is_a_loss)
        if rise is None and len(values) > ZOOM * PARTS:
            late = _rise_of_parts(values[first:], min_share, ZOOM_DEVIATIONS, min_share_alone, prior, is_a_loss)
            earlier = _taken_back(values[: first + late.onset], len(values) - first - late.onset) if late else 0.0
            if late and late.end - late.low > OVER_EARLIER_RISES * earlier and _is_above_past(values, first + late.onset, late):
                rise = replace(late, lowest=first + late.lowest, onset=first + late.onset)
    return rise


def large_or_clear_rise(values: Floats, *, large: float, small: float) -> Rise | None:
    """Return a rise by the share `large`, or one by `small` that exceeds the noise by `CLEAR_DEVIATIONS`; else None.

    Args:
        values: Finite, in the order of steps, shape (N,).
        large: Share of the lowest level from which a rise needs only the significance that sustained_rise asks for.
        small: Smallest share that matters.
    """
    rise = sustained_rise(values, min_share=large)
    return rise or sustained_rise(values, min_share=small, min_deviations=CLEAR_DEVIATIONS)


def falls_on(after: Floats, rise: Rise, *, given_back: float = 0.2) -> bool:
    """Tell whether a curve falls steadily again after its jump, by at least `given_back` of its rise.

    Args:
        after: The curve from the onset of its rise, finite, shape (N,).
        rise: The rise.
        given_back: Share of the distance from the level before to the highest level after.
    """
    if len(after) < 5:
        return False
    _, levels = parts_of(after, PARTS // 4)
    top = int(np.argmax(levels))
    peak, end = float(levels[top]), median(levels[-2:])
    return top <= len(levels) // 3 and rank_trend(levels) < -2.2 and peak - end >= given_back * (peak - rise.low)


def falls_from_each_jump(after: Floats, rise: Rise, *, parts: int = 12) -> bool:
    """Tell whether a curve falls again after its jump; if it jumps several times, after each jump until the next.

    Args:
        after: The curve from the onset of its rise, finite, shape (N,).
        rise: The rise.
        parts: Number of parts in which to look for more jumps, each by at least a third of the rise.
    """
    if falls_on(after, rise):
        return True
    if len(after) < 3 * parts:
        return False
    levels = np.array([median(part) for part in np.array_split(after, parts)])
    jumps = np.flatnonzero(np.diff(levels) > (levels.max() - rise.low) / 3) + 1
    if not len(jumps):
        return False
    starts = [0, *(int(jump) * len(after) // parts for jump in jumps), len(after)]
    lows = [rise.low, *levels[jumps - 1]]
    return all(
        falls_on(after[start:end], replace(rise, low=low)) for start, end, low in zip(starts, starts[1:], lows, strict=False)
    )


def _rise_of_parts(
    values: Floats, min_share: float, min_deviations: float, min_share_alone: float, prior: float, is_a_loss: bool
) -> Rise | None:
    starts, levels = parts_of(values)
    scale = float(np.abs(levels).max())
    if scale == 0 or not math.isfinite(scale) or (len(values) < ENOUGH_FOR_NOISE and levels.min() <= 0 < levels.max()):
        return None
    alone = len(values) < 5 or len(values) >= 3 * PARTS  # parts of three or more points are no single points
    levels = levels / scale
    least = min_deviations - ALLOWED_BY_LAW
    best = _clearest_split(levels, min_share_alone if len(values) < 5 else min_share, alone, prior, least)
    if best is None or not _stands_out(levels, best.deviations, min_deviations, is_a_loss):
        return None
    noise_is_known = len(values) >= ENOUGH_FOR_NOISE
    lowest, onset, low = best.row - (best.width + 1) // 2, best.row - 1, best.low
    if not noise_is_known:  # every point counts, so the rise begins right after the lowest
        lowest = onset = int(np.argmin(levels[: best.row]))
        low = float(levels[lowest])
    elif len(below := np.flatnonzero(levels <= low + (best.end - low) / 4)):
        onset = int(below[-1])
    if noise_is_known and not _lasts(values, levels[: onset + 1], best, scale):
        return None
    may_wander = len(levels) >= PARTS // 2 and best.end - best.low < best.low
    correlated = _deviations_of_correlated(levels, best) if may_wander else math.inf
    if correlated < min_deviations:
        return None
    return Rise(
        lowest=int(starts[lowest]),
        onset=_first_above(values, starts, onset, scale * (low + (best.end - low) / 4)),
        low=scale * low,
        end=scale * best.end,
        deviations=min(best.deviations, correlated),
        noise_is_known=noise_is_known,
    )


def _is_above_past(values: Floats, onset: int, late: Rise) -> bool:
    """Tell whether a rise ends well above the median of as many points before it; the lowest of scattered points are no level."""
    return late.end - median(values[max(0, 2 * onset - len(values)) : onset]) > (late.end - late.low) / 2


def _lasts(values: Floats, before: Floats, best: _Split, scale: float) -> bool:
    """Tell whether a curve ends above the level before its rise, and more than one easy batch made that level.

    The level of a part of several points need not be held by more, nor that of a curve which fell to it in its first points, and
    rises clearly.
    """
    falls_fast = best.row <= STEEP_POINTS and best.deviations >= CLEAR_DEVIATIONS
    is_judged_by_points = POINTS_FOR_A_LEVEL <= len(values) < MIN_LEVEL_POINTS * PARTS
    if is_judged_by_points and not falls_fast and (before < (best.low + best.end) / 2).sum() < 2:
        return False
    return bool(median(values[-MIN_LEVEL_POINTS:]) > scale * best.low)


def _deviations_of_correlated(levels: Floats, best: _Split) -> float:
    """Return the significance of a rise if the residuals of neighbours are correlated; infinite if they are not.

    Of N points whose neighbours correlate by r, only N (1 - r) / (1 + r) are independent (Bartlett 1935). Callers exclude levels
    that double: no average wanders so far unless its points scatter by their own size.
    """
    compared = np.log(levels) if levels.min() > 0 else levels
    before = isotonic_fits(compared)
    after, places = compared[best.row :], np.arange(len(levels) - best.row)
    straight = after - np.polyval(np.polyfit(places, after, min(1, len(places) - 1)), places)
    left_after = min(_left_of_fall(-after), straight, key=lambda rest: float(np.square(rest).sum()))
    left = np.concatenate([_left_of_fall(compared[: best.row]), left_after])
    squares = float(np.square(left).sum())
    correlation = float((left[1:] * left[:-1]).sum()) / squares if squares else 0.0
    if correlation <= CORRELATED / math.sqrt(len(levels)):
        return math.inf
    freedom = max(1.0, len(levels) - POINTS_PER_LEVEL * before.levels[best.row] - 2)
    gain = max(0.0, float(before.squares[-1]) - squares)
    return math.sqrt(gain / (squares / freedom) * (1 - correlation) / (1 + correlation))


def _left_of_fall(values: Floats) -> Floats:
    """Return the residuals of values from their best falling curve, shape (N,)."""
    fits, row, left = isotonic_fits(values), len(values), values.copy()
    while row:
        left[row - fits.width[row] : row] -= fits.low[row]
        row -= int(fits.width[row])
    return left


def _stands_out(levels: Floats, deviations: float, min_deviations: float, is_a_loss: bool) -> bool:
    """Tell whether a rise is clear by itself, or significant and not explained by any law of learning."""
    if not is_a_loss or len(levels) < POINTS_FOR_A_LAW or levels.min() <= 0:
        return deviations >= min_deviations
    if deviations >= max(min_deviations, CLEAR_DEVIATIONS):
        return True
    if trimmed_noise(np.log(levels)) > HEAVY_NOISE:
        return False
    allowed = ALLOWED_BY_LAW if len(levels) < PARTS else 0.0
    return deviations >= min_deviations - allowed and rise_likelihood_ratio(levels) >= MIN_LAW_RATIO


def _first_above(values: Floats, starts: Steps, part: int, limit: float) -> int:
    """Return the row after the last one of a part that is not above a limit, at most the last row."""
    end = int(starts[part + 1]) if part + 1 < len(starts) else len(values)
    below = np.flatnonzero(values[starts[part] : end] <= limit)
    return min(int(starts[part]) + (int(below[-1]) if len(below) else 0) + 1, len(values) - 1)


def _clearest_split(levels: Floats, min_share: float, alone: bool, prior: float, min_deviations: float) -> _Split | None:
    """Return the most significant row at which a curve may have turned upwards for good; None if there is none.

    Args:
        levels: From -1 to 1, shape (P,).
        min_share: See sustained_rise.
        alone: Whether the last level alone may follow the turn.
        prior: See sustained_rise.
        min_deviations: Smallest significance that is of any use to the caller.
    """
    count, positive = len(levels), bool(levels.min() > 0)
    compared = np.log(levels + NEGLIGIBLE_SHARE * median(levels)) if positive else levels
    before = isotonic_fits(compared)
    sums = np.concatenate([[0.0], np.cumsum(levels)])
    lows = (sums[:-1] - sums[np.arange(count) - before.width[:-1]]) / np.maximum(before.width[:-1], 1)
    after, costs = fits_after(compared, before.low[:-1])
    left = before.squares[:-1] + after
    freedom = np.maximum(0.0, count - POINTS_PER_LEVEL * before.levels[:-1] - costs)
    prior_squares = PRIOR_POINTS * np.square(prior if positive else prior * lows)
    bends = (count - 2) / 2  # neighbouring second differences share points, so each counts half
    bent = (prior_squares + bends * float(np.square(trimmed_noise(compared)))) / (PRIOR_POINTS + bends)
    variances = np.minimum((prior_squares + left) / (PRIOR_POINTS + freedom), bent)
    deviation_by_end = np.sqrt(np.maximum(0.0, before.squares[-1] - left) / variances)
    deviations, climbs = deviation_by_end.max(axis=0), deviation_by_end.argmax(axis=0) == CLIMB
    rows = np.arange(1, count if alone else count - 1)
    rows = rows[np.argsort(-deviations[rows])][:8]
    rows = rows[~(deviations[rows] < min_deviations)]
    best, middles = None, _middles_of_ends(levels) if len(rows) else deviations
    for row in rows.tolist():
        if best and deviations[row] < best.deviations:
            break
        low = float(lows[row])
        end = end_of_climb(levels[row:], low) if climbs[row] else end_level(levels[row:])
        middle = min(float(middles[row]), median(levels[max(row, count - 3) :]))
        rise = min(float(levels[row:].mean()) - low, 2 * (middle - low))
        enough = min_share * low if positive else 1.5 * float(np.ptp(levels[:row]))
        enough = max(enough, OVER_EARLIER_RISES * _taken_back(levels[:row], int(before.width[row])))
        usual = OVER_EARLIER_RISES * _taken_back(levels[:row], count - row)
        if min(end - low, 2 * (middle - low)) > enough and rise > max(0.0, usual):
            split = _Split(float(deviations[row]), row, int(before.width[row]), low, end)
            best = max(best, split) if best else split
    return best


def _middles_of_ends(levels: Floats) -> Floats:
    """Return the median of the points from each one on; of two points the lower, because neither makes a level."""
    seen: list[float] = []
    middles = np.empty(len(levels))
    for row in range(len(levels) - 1, -1, -1):
        insort(seen, float(levels[row]))
        half = len(seen) // 2
        middles[row] = seen[0] if len(seen) <= 2 else (seen[half] + seen[-half - 1]) / 2
    return middles


def _taken_back(before: Floats, width: int) -> float:
    """Return the largest earlier rise that a curve took back; correlated noise reaches as much.

    Args:
        before: Shape (N,).
        width: Points of the level in question; a third of `before` at most.
    """
    width = min(width, len(before) // 3)
    if width == 0:
        return 0.0
    sums = np.cumsum(np.concatenate([[0.0], before]))
    means = (sums[width:] - sums[:-width]) / width
    lowest = np.minimum.accumulate(means[:-width])
    return max(0.0, float((means[width:] - lowest).max()))


def end_level(after: Floats) -> float:
    """Return the level at the end of a part that may climb: the mean of one or two points, else the median of its last third."""
    return float(after.mean() if len(after) < 3 else median(after[-max(3, len(after) // 3) :]))


def end_of_climb(after: Floats, low: float) -> float:
    """Return the level that a straight climb reaches by its last point, by least squares; at most twice the rise of end_level.

    >>> end_of_climb(np.array([2.0, 3.0, 4.0]), 1.0)
    4.0
    """
    places = np.arange(1.0, len(after) + 1)
    risen = len(after) * float(places @ (after - low) / (places @ places))
    return low + min(risen, 2 * (end_level(after) - low))
