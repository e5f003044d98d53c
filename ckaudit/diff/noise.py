"""Noise of a comparison: the difference of two runs of the same training by chance, for each segment of a series."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA, MEDIAN_STANDARD_ERROR_FACTOR
from ckaudit.run.series import Floats, Steps

SEED = 1.0
"""Effect of a seed on the level, relative to the noise of one point: see docs/diff-calibration.md."""

SEEDS = (0.1, 3.0)
"""Range of factors for the effect of a seed, log-uniform: the effect depends on batch size, schedule and model, and was seen to
vary this much between model families."""

YOUNG_STEPS = 100
"""Steps after which a seed's effect shrinks: relative to the noise of a batch it was about 1 after 60 to 120 steps of families of
tiny models, 0.2 after 240 of a tiny transformer, and no more after thousands of a public one."""

SEED_LEAD = 0.05
"""Lead of one seed over another, as a share of the steps so far: see docs/diff-calibration.md."""

MAX_FALSE_ALARMS = 0.01
"""Share of replicas for which a question may be better or worse by chance: with a dozen questions, of which those on the loss are
strongly dependent, less than one pair in twenty comes out different."""

GRID = 15  # number of factors tried
FAR_SEED, FAR_SHARE = 100.0, 0.002
"""A factor beyond that range, and the share of trainings that have it: only replicas make it plausible."""
TINY = float(np.finfo(float).tiny)

MIN_RELATIVE_NOISE = 1e-9
"""Minimum noise, as a share of the value: smaller differences come from the order of float64 additions."""


class Stretches(Struct, frozen=True, eq=False):
    """The difference of two runs in one quantity, in K disjoint segments.

    Attributes:
        first: First step of each segment, shape (K,).
        last: Last step of each segment, shape (K,).
        left: Median of the first run, shape (K,); with replicas, the mean of all their medians.
        left_alone: Median of the first run by itself, shape (K,).
        right: Median of the second run, shape (K,).
        low: The lowest median of the first run and its replicas, shape (K,).
        high: The highest median of them, shape (K,).
        spread: Standard deviation of the difference of `left` and `right` by chance alone, shape (K,): that of a normal
            distribution with the same tail beyond `MAX_FALSE_ALARMS` as the predictive one.
        alone: Noise of a single point of both runs together, in the last segment.
        runs: Number of runs in the mean `left`.
    """

    first: Steps
    last: Steps
    left: Floats
    left_alone: Floats
    right: Floats
    low: Floats
    high: Floats
    spread: Floats
    alone: float
    runs: int = 1

    @property
    def excess(self) -> Floats:
        """Difference over its spread, shape (K,); positive if the second run is higher."""
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
    ahead: float = SEED_LEAD,
    max_noise_ratio: float = 4.0,
) -> Stretches:
    r"""Cut two columns into segments, and return how much of their difference is noise.

    $$\sigma^2 = \frac{\pi}{2} \frac{s_d^2}{n} \frac{1 + \rho}{1 - \rho}
    + \frac{1 + 1/r}{2} c^2 \left(b^2 (s_l^2 + s_r^2) + 2 (a\,t\,v_t)^2\right)$$

    The s are the robust standard deviations of the residuals of each run, and of their difference, around their own trend; rho is
    the lag-one correlation of the difference's residuals, and n the number of points in a segment. The second term is the effect
    of a seed on the level, which residuals do not show: b times the noise of a point, and a lead by the share a of the steps so
    far, where the level moves by v per step, both times the factor c.

    The factor c is not known. Its prior is log-uniform within `SEEDS`; after `YOUNG_STEPS` the bounds shrink with the root of the
    steps, as an average over batches does. With r runs of different seeds, the second run is compared with their mean, and the
    variance among them weights each c by its likelihood (a predictive interval: Gelman et al. 2013, Bayesian Data Analysis,
    section 3.2). So each additional run narrows the band, unless the runs differ widely. A run that breaks down does not measure
    chance: noise and pace of one run count for at most `max_noise_ratio` times those of the other.

    Args:
        steps: Steps, shape (T,).
        left: Finite values of the first run, shape (T,).
        right: Finite values of the second run, shape (T,).
        replicas: Finite values of replicas of the first at the same steps, shape (T,) each.
        size: Points per segment; 0: from `stretch_size`. The last segment is complete.
        own: Noise of both runs together, if another quantity shows it better than their own residuals.
        seed: The factor b.
        ahead: The factor a.
        max_noise_ratio: Maximum ratio of the noise of two runs that can be chance; a batch of a sixteenth of the size has four
            times the noise.
    """
    size = size or stretch_size(len(steps))
    ends = np.arange(len(steps), max(0, size - 1), -size)[::-1]
    cut = np.append(0, ends[:-1])
    among = np.stack([_medians(column, cut, ends) for column in (left, *replicas)])  # (R, K)
    one, two, runs = among.mean(axis=0), _medians(right, cut, ends), len(among)
    noises = [np.median([_scatter(column, cut, ends) for column in (left, *replicas)], axis=0), _scatter(right, cut, ends)]
    bound, near = _both(noises, max_noise_ratio)
    alone = np.maximum(near, median(near)) if own is None else np.full(len(cut), own)
    bound = bound if not own else np.minimum(bound, own * math.hypot(1, max_noise_ratio) / math.sqrt(2))
    between = right - np.mean([left, *replicas], axis=0)
    apart, correlation = np.minimum(bound, _scatter(between, cut, ends)), _correlation(between, cut, ends)
    pace = _pace(one, two, (steps[cut] + steps[ends - 1]) / 2, max_noise_ratio)
    known = _variance_of_medians(apart, correlation, ends - cut, size) / (1 + 1 / runs)  # of one run
    of_seeds = (seed * alone) ** 2 / 2 + (ahead * pace) ** 2
    floor = MIN_RELATIVE_NOISE * np.maximum(np.abs(one), np.abs(two))
    variances = np.maximum(known + _factors(steps[ends - 1]) ** 2 * of_seeds, floor**2 + TINY)
    seen = _around(np.var(among, axis=0, ddof=1), np.mean) if runs > 1 else np.zeros(len(cut))
    spread = np.sqrt(1 + 1 / runs) * _spread(np.sqrt(variances), _likelihood(variances, seen, runs - 1))
    return Stretches(
        first=steps[cut],
        last=steps[ends - 1],
        left=one,
        left_alone=among[0],
        right=two,
        low=among.min(axis=0),
        high=among.max(axis=0),
        spread=spread,
        alone=float(alone[-1]),
        runs=runs,
    )


def _variance_of_medians(scatter: Floats, correlation: float, counts: Steps, size: int) -> Floats:
    """Return the variance of the median of each segment, from scatter, lag-one correlation and number of points."""
    points = np.maximum(1.0, counts * (1 - correlation) / (1 + correlation))
    return np.asarray(((MEDIAN_STANDARD_ERROR_FACTOR if size > 2 else 1.0) * scatter) ** 2 / points)


def _factors(steps: Steps) -> Floats:
    """Return the possible factors c at the end of each segment, shape (G, K): they shrink as the steps grow."""
    shrunk = np.sqrt(YOUNG_STEPS / np.maximum(YOUNG_STEPS, steps))
    return np.append(np.geomspace(*SEEDS, GRID), np.geomspace(SEEDS[1], FAR_SEED, GRID)[1:])[:, None] * shrunk


def _likelihood(variances: Floats, seen: Floats, freedom: int) -> Floats:
    """Return the weight of each variance, given one observed with `freedom` degrees of freedom, shape (G, K); they sum to 1."""
    prior = np.append(np.full(GRID, (1 - FAR_SHARE) / GRID), np.full(len(variances) - GRID, FAR_SHARE / (len(variances) - GRID)))
    logarithms = np.log(prior)[:, None] - freedom / 2 * (np.log(variances) + seen / variances)
    weights = np.exp(logarithms - logarithms.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0))


def _spread(deviations: Floats, weights: Floats, *, share: float = MAX_FALSE_ALARMS, rounds: int = 40) -> Floats:
    """Return the deviation of the normal distribution with the same tail `share` as a mixture of normal ones, shape (K,)."""
    low, high = deviations.min(axis=0), deviations.max(axis=0)
    limit = quantile(share)
    for _ in range(rounds):
        middle = np.sqrt(low * high)
        outside = (weights * _outside(limit * middle / deviations)).sum(axis=0)
        low, high = np.where(outside > share, middle, low), np.where(outside > share, high, middle)
    return np.asarray(np.sqrt(low * high))


def _outside(x: Floats) -> Floats:
    """Return the share of a normal distribution beyond x deviations from its mean (Abramowitz & Stegun 1964, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * x / math.sqrt(2))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(series * np.exp(-(x**2) / 2))


def stretch_size(points: int, *, parts: int = 20, min_points: int = 5, max_points: int = 50) -> int:
    """Return the number of points per segment of a series; 1 if there are too few points."""
    return 1 if points < 4 * min_points else min(max_points, max(min_points, points // parts))


def _both(scatters: Sequence[Floats], max_noise_ratio: float) -> tuple[Floats, Floats]:
    """Return the largest noise of both together that can be chance, and the observed one, shape (K,) each.

    Noise of exactly 0 comes from a rounded log, and bounds nothing.
    """
    calm = np.minimum(*scatters)
    bound = np.where(calm > 0, calm * math.hypot(1, max_noise_ratio), np.inf)
    return bound, np.minimum(bound, np.hypot(*scatters))


def _pace(one: Floats, two: Floats, middle: Floats, max_noise_ratio: float) -> Floats:
    """Return how far the levels would move if the steps so far were doubled at the pace of each segment, shape (K,)."""
    if len(middle) < 3:
        return np.zeros(len(middle))
    first, second = (_around(np.gradient(level, middle), np.mean, reach=1) for level in (one, two))
    calm = np.minimum(np.abs(first), np.abs(second))
    return np.asarray(middle * np.minimum(np.abs(first + second) / 2, max_noise_ratio * calm))


def _medians(column: Floats, cut: Steps, ends: Steps) -> Floats:
    """Return the median of each segment; all but the first have the same length."""
    rest = column[ends[0] :].reshape(len(cut) - 1, -1) if len(cut) > 1 else np.empty((0, 1))
    return np.append(median(column[: ends[0]]), np.median(rest, axis=1))


def _residuals(column: Floats, cut: Steps, ends: Steps) -> Floats:
    """Return the residuals of a column around lines between the medians of its segments.

    For segments of a single point they are second differences, which are free of straight lines, too.
    """
    if len(cut) == len(column):
        if len(column) < 3:
            return np.abs(np.diff(column, prepend=column[:1]))
        bent = (column[1:-1] - (column[:-2] + column[2:]) / 2) / math.sqrt(1.5)
        return np.concatenate([bent[:1], bent, bent[-1:]])
    middle = (cut + ends - 1) / 2
    return np.asarray(column - np.interp(np.arange(len(column)), middle, _medians(column, cut, ends)))


def _scatter(column: Floats, cut: Steps, ends: Steps) -> Floats:
    """Return the robust standard deviation of a column around its trend, near each segment."""
    rest = np.abs(_residuals(column, cut, ends))
    if len(cut) == len(column):
        return MAD_TO_SIGMA * _around(rest, np.median, reach=50)
    return _around(MAD_TO_SIGMA * _medians(rest, cut, ends), np.median)


def _correlation(column: Floats, cut: Steps, ends: Steps, *, max_correlation: float = 0.8) -> float:
    """Return the lag-one correlation of a column's residuals, 0 to `max_correlation`."""
    rest = _residuals(column, cut, ends)
    if len(cut) == len(column) or len(rest) < 10:
        return 0.0
    scale = median(np.abs(rest)) * 6
    rest = np.clip(rest, -scale, scale)
    power = float(np.dot(rest, rest))
    return min(max_correlation, max(0.0, float(np.dot(rest[1:], rest[:-1])) / power)) if power > 0 else 0.0


def _around(values: Floats, average: Callable[..., Floats], *, reach: int = 2) -> Floats:
    """Return the mean or median of each value and its neighbours; at the ends, of the existing ones."""
    width = 2 * reach + 1
    if len(values) <= width:
        return np.array([average(values[max(0, row - reach) : row + reach + 1]) for row in range(len(values))])
    inside = average(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    first = [average(values[: row + reach + 1]) for row in range(reach)]
    last = [average(values[row - reach :]) for row in range(len(values) - reach, len(values))]
    return np.concatenate([first, inside, last])


def quantile(share: float, freedom: float = math.inf) -> float:
    """Return the two-sided quantile of Student's distribution: the standard deviations outside of which `share` lies.

    Hill's expansion of Student's quantile in the normal one (Abramowitz & Stegun 1964, 26.7.5) is accurate to a percent from
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
