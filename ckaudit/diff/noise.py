"""Noise of a comparison: how far two runs of the same training come apart by chance, at each stretch of a series."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Steps

MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal values."""

SEED = 0.2
"""What a seed does to the level, over the noise of one point: see docs/diff-calibration.md."""

AHEAD = 0.02
"""How much further along one seed is than another, as a share of the steps so far: see docs/diff-calibration.md."""

LEAST = 1e-9
"""Smallest noise, as a share of the value: below it lies what adding in another order does to float64."""


class Stretches(Struct, frozen=True, eq=False):
    """The difference of two runs in one quantity, stretch by stretch: K of them, none shared.

    Attributes:
        first: First step of each, shape (K,).
        last: Last step of each, shape (K,).
        left: Median of the first run, shape (K,).
        right: Median of the second run, shape (K,).
        spread: Standard deviation of their difference by chance alone, shape (K,).
        freedom: Degrees of freedom that the spread rests on.
        alone: Noise of a single point of both runs together, at the end.
    """

    first: Steps
    last: Steps
    left: Floats
    right: Floats
    spread: Floats
    freedom: float
    alone: float

    @property
    def excess(self) -> Floats:
        """Difference over its spread, shape (K,); positive where the second is higher."""
        return np.asarray((self.right - self.left) / self.spread)


def stretches(
    steps: Steps,
    left: Floats,
    right: Floats,
    replicas: Sequence[Floats] = (),
    *,
    size: int = 0,
    own: float | None = None,
    seed: float = SEED,
    ahead: float = AHEAD,
    trust: float = 4.0,
    max_noise_ratio: float = 4.0,
) -> Stretches:
    r"""Cut two columns into stretches, and say how much of their difference is noise.

    $$\sigma^2 = \frac{\pi}{2} \frac{s_d^2}{n} \frac{1 + \rho}{1 - \rho} + c^2 (s_l^2 + s_r^2) + 2 (a\,t\,v_t)^2$$

    with the robust residuals s of each run and of their difference around their own trend, the lag-one correlation
    rho of those of the difference, and n points a stretch. The rest is what a seed does to the level, which residuals
    cannot see: c times the noise of a point, and being further along by a share a of the steps so far, where the level
    moves by v a step. Replicas say it themselves: their differences replace that variance, weighted by their degrees of
    freedom against `trust`. A run that breaks down is no measure of chance: neither noise nor pace of one counts for more
    than `max_noise_ratio` times that of the other.

    Args:
        steps: Shape (T,).
        left: Finite values of the first run, shape (T,).
        right: Finite values of the second run, shape (T,).
        replicas: Finite values of replicas at the same steps, shape (T,) each.
        size: Points of a stretch; 0: as `stretch_size` has it. The last stretch is whole.
        own: Noise of both runs together, where another quantity tells it better than their own residuals.
        seed: The factor c.
        ahead: The factor a.
        trust: Degrees of freedom that the residuals count for beside replicas.
        max_noise_ratio: How many times the noise of the other that of one can be and still be chance; that of a batch of a
            sixteenth is four times as large.
    """
    size = size or stretch_size(len(steps))
    ends = np.arange(len(steps), max(0, size - 1), -size)[::-1]
    cut = np.append(0, ends[:-1])
    one, two = (_medians(column, cut, ends) for column in (left, right))
    bound, near = _both([_scatter(column, cut, ends) for column in (left, right)], max_noise_ratio)
    alone = np.maximum(near, median(near)) if own is None else np.full(len(cut), own)
    bound = bound if not own else np.minimum(bound, own * math.hypot(1, max_noise_ratio) / math.sqrt(2))
    apart, correlation = np.minimum(bound, _scatter(right - left, cut, ends)), _correlation(right - left, cut, ends)
    points = np.maximum(1.0, (ends - cut) * (1 - correlation) / (1 + correlation))
    variance = ((MEDIAN if size > 2 else 1.0) * apart) ** 2 / points + (seed * alone) ** 2
    variance += 2 * (ahead * _pace(one, two, (steps[cut] + steps[ends - 1]) / 2, max_noise_ratio)) ** 2
    floor = (LEAST * np.maximum(np.abs(one), np.abs(two))) ** 2 + np.finfo(float).tiny
    variance = np.maximum(variance, floor)
    freedom = math.inf if size > 1 else max(3.0, len(steps) / 2)
    if replicas:
        between, degrees = _between([_medians(column, cut, ends) for column in (left, *replicas)])
        variance, freedom = (trust * variance + degrees * between) / (trust + degrees), trust + degrees
    return Stretches(steps[cut], steps[ends - 1], one, two, np.sqrt(variance), freedom, float(alone[-1]))


def stretch_size(points: int, *, parts: int = 20, min_points: int = 5, max_points: int = 50) -> int:
    """Return how many points a stretch of a series has: one where there are too few to make stretches."""
    return 1 if points < 4 * min_points else min(max_points, max(min_points, points // parts))


def _between(medians: Sequence[Floats]) -> tuple[Floats, float]:
    """Return the variance of the difference of two replicas at each stretch, and its degrees of freedom.

    Neighbouring stretches, which see the same seeds, are pooled; they count once.
    """
    among = np.var(np.stack(medians), axis=0, ddof=1) * 2
    return _around(among, np.mean), float(len(medians) - 1)


def _both(scatters: Sequence[Floats], max_noise_ratio: float) -> tuple[Floats, Floats]:
    """Return the largest noise of both together that can be chance, and that which they show, shape (K,) each.

    Noise of exactly none is that of a rounded log, and bounds nothing.
    """
    calm = np.minimum(*scatters)
    bound = np.where(calm > 0, calm * math.hypot(1, max_noise_ratio), np.inf)
    return bound, np.minimum(bound, np.hypot(*scatters))


def _pace(one: Floats, two: Floats, middle: Floats, max_noise_ratio: float) -> Floats:
    """Return how far the levels would move if the steps so far were doubled at the pace of each stretch, shape (K,)."""
    if len(middle) < 3:
        return np.zeros(len(middle))
    first, second = (_around(np.gradient(level, middle), np.mean, reach=1) for level in (one, two))
    calm = np.minimum(np.abs(first), np.abs(second))
    return np.asarray(middle * np.minimum(np.abs(first + second) / 2, max_noise_ratio * calm))


def _medians(column: Floats, cut: Steps, ends: Steps) -> Floats:
    """Return the median of each stretch; all but the first are as long."""
    rest = column[ends[0] :].reshape(len(cut) - 1, -1) if len(cut) > 1 else np.empty((0, 1))
    return np.append(median(column[: ends[0]]), np.median(rest, axis=1))


def _residuals(column: Floats, cut: Steps, ends: Steps) -> Floats:
    """Return what is left of a column when lines between the medians of its stretches are taken out.

    Where a stretch is a single point, the second difference is, which a straight line does not enter either.
    """
    if len(cut) == len(column):
        if len(column) < 3:
            return np.abs(np.diff(column, prepend=column[:1]))
        bent = (column[1:-1] - (column[:-2] + column[2:]) / 2) / math.sqrt(1.5)
        return np.concatenate([bent[:1], bent, bent[-1:]])
    middle = (cut + ends - 1) / 2
    return np.asarray(column - np.interp(np.arange(len(column)), middle, _medians(column, cut, ends)))


def _scatter(column: Floats, cut: Steps, ends: Steps) -> Floats:
    """Return the robust standard deviation of a column around its trend, near each stretch."""
    rest = np.abs(_residuals(column, cut, ends))
    if len(cut) == len(column):
        return MAD_TO_SIGMA * _around(rest, np.median, reach=50)
    return _around(MAD_TO_SIGMA * _medians(rest, cut, ends), np.median)


def _correlation(column: Floats, cut: Steps, ends: Steps, *, max_correlation: float = 0.8) -> float:
    """Return the lag-one correlation of what is left of a column, 0 to `max_correlation`."""
    rest = _residuals(column, cut, ends)
    if len(cut) == len(column) or len(rest) < 10:
        return 0.0
    scale = median(np.abs(rest)) * 6
    rest = np.clip(rest, -scale, scale)
    power = float(np.dot(rest, rest))
    return min(max_correlation, max(0.0, float(np.dot(rest[1:], rest[:-1])) / power)) if power > 0 else 0.0


def _around(values: Floats, how: Callable[..., Floats], *, reach: int = 2) -> Floats:
    """Return the mean or median of each value and its neighbours; of the first and last, of those that there are."""
    width = 2 * reach + 1
    if len(values) <= width:
        return np.array([how(values[max(0, row - reach) : row + reach + 1]) for row in range(len(values))])
    inside = how(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    first = [how(values[: row + reach + 1]) for row in range(reach)]
    last = [how(values[row - reach :]) for row in range(len(values) - reach, len(values))]
    return np.concatenate([first, inside, last])


def quantile(share: float, freedom: float = math.inf) -> float:
    """Return how many standard deviations hold all but `share` of Student's distribution, on both sides together.

    Hill's expansion of Student's quantile in the normal one (Abramowitz & Stegun 1964, 26.7.5), good to a percent from
    three degrees of freedom on.

    >>> round(quantile(0.05), 3), round(quantile(0.05, 5), 2)
    (1.96, 2.57)
    """
    from statistics import NormalDist

    x = -NormalDist().inv_cdf(share / 2)
    if math.isinf(freedom):
        return x
    first = (x**3 + x) / 4
    second = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    third = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    return x + first / freedom + second / freedom**2 + third / freedom**3
