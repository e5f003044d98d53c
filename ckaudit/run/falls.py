"""How far a curve falls, whether and when it stands still, and the smallest fall that its noise would let show."""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from ckaudit.run.learning_curves import fall_likelihood_ratio, level_likelihood_ratio
from ckaudit.run.medians import median, medians_of_parts
from ckaudit.run.rises import PRIOR_NOISE, sustained_rise
from ckaudit.run.robust import (
    ENOUGH_FOR_NOISE,
    MAD_TO_SIGMA,
    MEDIAN_STANDARD_ERROR_FACTOR,
    begins_with_its_run,
    difference_noise,
    log_noise,
    means_of_parts,
    parts_of,
    rank_trend,
    trimmed_noise,
    typical_move,
)
from ckaudit.run.series import Floats, Series, Steps

POINTS_OF_A_COURSE = 5
"""A law of learning has four parameters."""

BLOCKS = 24
"""A curve is judged by the medians of this many equal parts: a spike moves none of them, and eight hours show in one."""

MIN_POINTS = 120
"""Points from which a log is judged part by part; shorter logs are compared from their first third to their last."""

Kind = Literal["flat", "lost", "apart", "rests"]


class Fall(Struct, frozen=True):
    """Fall of a curve from an earlier part to a later one.

    Attributes:
        first: Level of the earlier part.
        last: Level of the later part.
        error: Standard error of their difference; NaN if there are too few points.
    """

    first: float
    last: float
    error: float

    @property
    def is_none(self) -> bool:
        """Whether the fall is within two standard errors of zero, or below one percent of the level."""
        return self.first - self.last <= max(0.01 * abs(self.first), 2 * self.error)

    @property
    def deviations(self) -> float:
        """The fall divided by its standard error."""
        return (self.first - self.last) / self.error if self.error > 0 else math.inf if self.first > self.last else 0.0


def fall_between_thirds(values: Floats) -> Fall:
    """Return the fall of a curve from its first third to its last; the error is NaN for fewer than five points.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
    """
    third = max(1, len(values) // 3)
    noise = difference_noise(values) if len(values) >= 5 else math.nan
    error = noise * math.sqrt(2 / third) * (MEDIAN_STANDARD_ERROR_FACTOR if third > 2 else 1.0)
    return Fall(median(values[:third]), median(values[-third:]), error)


def largest_fall(values: Floats) -> Fall:
    """Return the fall of a curve at the split of its points where it is most significant.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
    """
    _, levels = parts_of(values)
    noise = trimmed_noise(levels)
    splits = np.arange(1, len(levels))
    sums = np.cumsum(levels)
    first, last = sums[:-1] / splits, (sums[-1] - sums[:-1]) / (len(levels) - splits)
    errors = np.sqrt(1 / splits + 1 / (len(levels) - splits))
    place = int(np.argmax((first - last) / errors))
    return Fall(float(first[place]), float(last[place]), noise * float(errors[place]))


def _limit_by_noise(error: float, points: int, max_deviations: float) -> float:
    """Return the smallest fall that stands out of the noise: larger with few points, which estimate noise badly."""
    return max_deviations * (1 + 4 / points) * error


def ends_lower(values: Floats, *, min_fall: float, max_deviations: float = 3.3) -> bool:
    """Tell whether a curve of two points or more ends below its first by a share of it, in a fall beyond its noise.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_fall: The share.
        max_deviations: As in never_falls; with fewer than five points the noise is unknown and not used.

    >>> ends_lower(np.array([1.0, 0.4, 0.4]), min_fall=0.01), ends_lower(np.array([1.0, 0.4, 1.0]), min_fall=0.01)
    (True, False)
    """
    fall, enough = largest_fall(values), min_fall * abs(float(values[0]))
    by_noise = _limit_by_noise(fall.error, len(values), max_deviations) if len(values) >= 5 else 0.0
    end = min(float(values[-1]), median(values[-max(1, len(values) // 3) :]))
    return fall.first - fall.last > max(enough, by_noise) and float(values[0]) - end > enough


def fall_accelerates(values: Floats, *, parts: int = 9, min_deviations: float = 3.0) -> bool:
    """Tell whether a curve falls further in its last third than in its first, beyond its noise, and ends at its lowest level.

    Args:
        values: Finite, in the order of steps, shape (N,).
        parts: Number of parts by whose medians the curve is judged.
        min_deviations: Smallest fall of the last third in standard errors.
    """
    if len(values) < parts:
        return False
    levels, third = [median(part) for part in np.array_split(values, parts)], parts // 3
    error = MEDIAN_STANDARD_ERROR_FACTOR * difference_noise(values) * math.sqrt(2 * parts / len(values))
    fall = levels[-third] - levels[-1]
    return fall > max(levels[0] - levels[third - 1], min_deviations * error) and levels[-1] == min(levels)


def never_falls(
    values: Floats, *, min_fall: float = 0.01, max_fall: float = 0.3, max_deviations: float = 3.3, max_noise: float = 0.2
) -> Fall | None:
    """Return the fall of a curve that does not fall; None if it falls, rises or cannot be judged.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_fall: Share of the level; a curve that falls by less has not fallen.
        max_fall: Share of the level; a curve that falls by more has fallen, whatever its noise.
        max_deviations: Fall in standard errors; the largest fall over all splits of pure noise is smaller. Larger for few points.
        max_noise: Share of the level; a curve with more noise, as of a policy gradient, has no level to fall from.
    """
    if len(values) < 3:
        return None
    fall = largest_fall(values)
    level = abs(median(values))
    _, levels = parts_of(values)
    if level == 0 or trimmed_noise(levels) > max_noise * level:
        return None
    # Reached by one curve of pure noise in twenty if there are few points, which show little but their order, else in a hundred.
    if rank_trend(levels) < (-1.6 if len(values) < ENOUGH_FOR_NOISE else -2.3):
        return None
    by_noise = _limit_by_noise(fall.error, len(values), max_deviations) if len(values) >= 5 else 0.0
    if fall.first - fall.last > max(min_fall * level, min(by_noise, max_fall * level)):
        return None
    return fall if sustained_rise(values) is None else None


def flat_fall(values: Floats, *, max_ratio: float = 5.0, max_scatter: float = 0.2) -> Fall | None:
    """Return the fall of a curve that does not fall as a learning curve does; None for any other curve. It may rise.

    Args:
        values: Finite, in the order of steps, shape (N,). Fewer than five, or non-positive ones, are judged by never_falls.
        max_ratio: Log likelihood ratio of a law of learning. Of a hundred curves of pure noise, one reaches it at ten points and
            more, three at five.
        max_scatter: Share of the level; a curve that scatters or moves by more has no level.
    """
    levels = means_of_parts(values)
    if len(levels) < POINTS_OF_A_COURSE or levels.min() <= 0:
        return never_falls(values)
    if float(np.std(levels)) > max_scatter * float(np.mean(levels)) or fall_likelihood_ratio(levels) >= max_ratio:
        return None
    return largest_fall(values)


def fall_would_show(values: Floats, fall: float, *, min_ratio: float = 2.0) -> bool:
    """Tell whether a flat curve would look different if it had fallen by a share of its level in its first quarter.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
        fall: The share.
        min_ratio: Log likelihood ratio of a level over such a fall, reached by 2 % of the curves that fall so. Larger for few
            points.
    """
    levels = means_of_parts(values)
    if len(levels) < POINTS_OF_A_COURSE or levels.min() <= 0:
        return smallest_visible_fall(values) <= fall
    return level_likelihood_ratio(levels, fall=fall) >= min_ratio * (1 + 4 / len(values))


def smallest_visible_fall(values: Floats, *, max_deviations: float = 3.3) -> float:
    """Return the smallest fall, as a share of the level, that would show above a curve's noise if it ended at a quarter of it.

    That of a fine-tuning often ends there, so the first quarter is compared with the rest.

    Args:
        values: Finite, in the order of steps, shape (N,), three at least.
        max_deviations: As in never_falls; larger for few points.
    """
    _, levels = parts_of(values)
    noise = trimmed_noise(levels)
    level = abs(median(values))
    error = noise * math.sqrt(16 / (3 * len(levels)))
    return _limit_by_noise(error, len(values), max_deviations) / level if level else math.inf


class EarlyFall(NamedTuple):
    """Loss at the start, soon after and at the end, the standard error of the early fall, and the share of a straight line."""

    start: float
    soon: float
    end: float
    error: float
    line: float


def early_fall(steps: Steps, values: Floats, early: float) -> EarlyFall:
    """Return the loss at the start, after the first share of steps and at the end: medians, or interpolated of few points.

    Args:
        steps: Shape (N,).
        values: Finite, shape (N,), five at least.
        early: The share.
    """
    cut = steps[0] + early * (steps[-1] - steps[0])
    inside = int(np.searchsorted(steps, cut, side="right"))
    few = max(3, round(inside / 3))
    share = log_noise(values) if len(values) >= ENOUGH_FOR_NOISE else PRIOR_NOISE
    noise = share * abs(float(values[0])) if share else difference_noise(values)
    if inside < 3:
        soon, line = float(np.interp(cut, steps, values)), (cut - steps[0]) / (steps[-2] - steps[0])
        return EarlyFall(float(values[0]), soon, median(values[-3:]), noise * np.sqrt(2), line)
    around = slice(max(0, inside - 1 - few // 2), inside + few // 2)
    start, soon, end = (median(values[part]) for part in (slice(3), around, slice(-few, None)))
    first, then, last = (median(steps[part]) for part in (slice(3), around, slice(-few, None)))
    return EarlyFall(
        start, soon, end, MEDIAN_STANDARD_ERROR_FACTOR * noise * np.sqrt(1 / 3 + 1 / few), (then - first) / (last - first)
    )


def steepest_tenth(steps: Steps, values: Floats) -> float:
    """Return ten times the largest fall within a tenth of the steps, measured between the medians of neighbouring tenths."""
    tenths = np.minimum(10 * (steps - steps[0]) // (steps[-1] - steps[0]), 9)
    cuts = np.flatnonzero(tenths[1:] != tenths[:-1]) + 1
    parts = [slice(start, end) for start, end in pairwise([0, *cuts.tolist(), len(steps)])]
    stages, places = (np.array([median(quantity[part]) for part in parts]) for quantity in (values, steps))
    return float((-np.diff(stages) / np.diff(places)).max() * (places[-1] - places[0]))


class Plateau(Struct, frozen=True):
    """A curve that stands still: kind, first row, level, the limit it is compared with, and the message."""

    kind: Kind
    row: int
    level: float
    limit: float
    message: str


def is_whole_log(steps: Steps, *, start: float = 0.05, min_points: int = MIN_POINTS) -> bool:
    """Tell whether a log starts within the first `start` of its run's steps and has enough points to judge its shape."""
    return len(steps) >= min_points and int(steps[0]) <= max(1.0, start * float(steps[-1]))


FALL_BETWEEN_THIRDS = 1 / 3
"""The first and the last third of the second half are a third of all steps apart; as many steps again give three times the fall.
"""


def would_reach_level(late: Floats, times: float) -> bool:
    """Tell whether losses at a multiple of a level fall fast enough to reach it within as many steps again.

    Args:
        late: Losses of the second half of a run.
        times: Their median as a multiple of that level.
    """
    if len(late) < 3:
        return True
    fall = fall_between_thirds(late)
    return fall.first - fall.last >= FALL_BETWEEN_THIRDS * fall.last * (1 - 1 / times)


MAX_REST_SHARE = 0.1
"""Tolerance, as a share of the first fall, above which noise hides whether a curve rests."""


def plateau_of(
    steps: Steps,
    losses: Floats,
    val: Series | None,
    *,
    fell: float = 0.01,
    apart: float = 0.25,
    rest: float = 0.03,
    high: float = 0.5,
    min_fall: float = 1.0,
) -> Plateau | None:
    """Return how a curve stands still; None if it does not or cannot be judged.

    Args:
        steps: Shape (T,).
        losses: Finite, shape (T,).
        val: The held-out loss.
        fell: A curve that ends less than this share below its first ten points has learnt nothing.
        apart: Share of the first loss by which the held-out loss must move while the training loss stays. Evaluations before the
            tenth point do not count: the training loss may have moved as much there.
        rest: Share of the first fall within which a resting curve stays from the first quarter on; or four standard errors of its
            parts if that is more, up to a tenth.
        high: A curve may rest below this share of the first loss: models that know the order of tokens reach a third of it, and
            public runs of small models rest there for most of their steps.
        min_fall: Nats by which a resting curve must have fallen. The frequencies of tokens give that much; a fine-tuning falls
            less.
    """
    if not is_whole_log(steps):
        return _resting_in_few(losses, high, min_fall) if 8 <= len(losses) < MIN_POINTS and begins_with_its_run(steps) else None
    width, longer = divmod(len(losses), BLOCKS)
    firsts = np.arange(BLOCKS) * width + np.minimum(np.arange(BLOCKS), longer)  # first rows of the parts of np.array_split
    middle = medians_of_parts(losses, BLOCKS)
    began, ends = median(losses[:10]), float(middle[-1])
    noise = MAD_TO_SIGMA * typical_move(losses) / np.sqrt(2)
    if began <= 5 * noise:
        return None
    if float(losses[0]) > began + max(5 * noise, 0.1 * began):
        began = float(losses[0])  # the loss came down within its first log lines
    if ends > (1 - fell) * began:
        return _back(firsts, middle, began, (1 - fell) * began)
    if min(ends, float(middle.min())) > 0.9 * began and (moved := _moved(val, since=int(steps[9]))) > apart * began:
        return Plateau(
            "apart",
            0,
            ends,
            began,
            "the loss hardly falls, from {limit:.4g} to {value:.4g}, " + f"while the held-out loss moves by {moved:.3g}",
        )
    return _resting(firsts, middle, began, 1.25 * noise / np.sqrt(width + min(longer, 1)), rest, high, min_fall)


def _back(firsts: Steps, middle: Floats, began: float, bound: float) -> Plateau:
    """Return the plateau of a curve that ends as high as it began, from the row since which it never left that height."""
    lower = np.flatnonzero(middle <= bound)
    row = int(firsts[lower[-1] + 1]) if len(lower) and middle.min() < 0.9 * began else 0
    had_learnt = float(middle.min()) < 0.9 * began
    kind: Kind = "lost" if had_learnt else "flat"
    outcome = "all that was learnt is lost since step {first}" if had_learnt else "nothing is learnt"
    return Plateau(kind, row, float(middle[-1]), began, "the loss ends at {value:.4g}, having begun at {limit:.4g}: " + outcome)


def _moved(val: Series | None, *, since: int) -> float:
    """Return the range of the held-out loss over all evaluations from a step on."""
    if val is None:
        return 0.0
    known = val.values[val.finite & (val.steps >= since)[:, None]]
    return float(np.ptp(known)) if known.size else 0.0


def _resting_in_few(losses: Floats, high: float, min_fall: float) -> Plateau | None:
    """Return the plateau of a short curve that falls at once and then by 3 % at most after its first quarter.

    Args:
        losses: Finite, shape (T,).
        high: See plateau_of.
        min_fall: See plateau_of.
    """
    began, first = float(losses[0]), max(2, len(losses) // 4)
    rest = never_falls(losses[first:], max_fall=0.03, max_noise=0.03)
    if rest is None or rest.last < high * began or began - rest.last < min_fall or rank_trend(losses[first:]) < -1:
        return None
    return Plateau(
        "rests",
        first,
        rest.last,
        rest.first,
        "the loss came to {value:.4g} at once, and no lower from step {first} to step {last}, "
        f"in the {len(losses)} points that there are",
    )


def _resting(
    firsts: Steps, middle: Floats, began: float, error: float, rest: float, high: float, min_fall: float
) -> Plateau | None:
    """Return the plateau of a curve that stays without a trend where it was after a quarter of the run."""
    quarter = BLOCKS // 4
    level = median(middle[quarter:])
    fall = began - level
    near = float(max(rest * fall, 4 * error))  # noise widens the tolerance
    if level < high * began or fall < min_fall or near > MAX_REST_SHARE * fall:
        return None
    within = np.abs(middle - level) <= near
    trend = abs(median(middle[quarter : 2 * quarter]) - median(middle[-quarter:]))
    if not within[quarter:].all() or trend > 3 * np.sqrt(2 / quarter) * error:
        return None
    higher = np.flatnonzero(middle - level > (max(2 * error, near / 4) if near == rest * fall else near))
    first = min(int(higher[-1]) + 1, BLOCKS - 1) if len(higher) else 0
    return Plateau(
        "rests",
        int(firsts[first]),
        level,
        level + near,
        "the loss came to {value:.4g} by step {first}, and no lower to step {last}",
    )
