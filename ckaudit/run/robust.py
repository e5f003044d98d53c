"""Robust properties of a curve of any length: level, noise, rounding, trend, outliers, and whether it is a score.

Everything works from three points on, for any unit and sign. A long curve is first reduced to the medians of equal parts, so that
all lengths are judged alike. Noise comes from second differences, which neither a trend nor a single jump affects. The confidence
interval of a counted share is also defined here.
"""

import math
from bisect import insort

import numpy as np

from ckaudit.run.blocks import blocks, by_blocks
from ckaudit.run.medians import median, medians_of_rows
from ckaudit.run.series import Floats, Mask, Series, Steps

MAD_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation to the standard deviation of normal values (Rousseeuw & Croux 1993)."""

PARTS = 48
"""A curve of at least twice as many points is reduced to the medians of this many parts, or up to twice as many."""

BLOCKS = 24
"""The same for a curve that is judged by its whole course, in which single parts count less."""

MEDIAN_STANDARD_ERROR_FACTOR = math.sqrt(math.pi / 2)
"""Standard error of a median divided by that of a mean, for normal values."""

ENOUGH_FOR_NOISE = 8
"""With fewer points, even pure noise often falls and then rises without a step back: 13 % of all orders of 5 do, 0.3 % of 8."""

TRIM = 0.75
"""Share of the second differences that count, smallest first: the others belong to spikes and to the bend of a steep start."""

TRIMMED_TO_SIGMA = 1.65
"""Factor from the root mean square of the smallest three quarters of normal values to their standard deviation."""

ROUNDING = 1e-6
"""Distance from zero that rounding to float32 alone gives a sum of numbers of size one; only a solved loss is as small."""

BFLOAT16_TAIL = 0xFFFF  # bits of a float32 that a bfloat16 lacks
BFLOAT16_DIGITS = 7  # mantissa bits of a bfloat16


def difference_noise(values: Floats) -> float:
    r"""Return the standard deviation of the noise of a curve.

    $$\hat\sigma = 1.4826 \operatorname{median} |y_{i-1} - 2 y_i + y_{i+1}| / \sqrt 6$$

    A straight line has no noise, and a jump affects only two of the differences. NaN for fewer than three points.

    Args:
        values: Finite, shape (N,).

    >>> difference_noise(np.arange(10.0))
    0.0
    """
    if len(values) < 3:
        return math.nan
    return MAD_TO_SIGMA * median(_bends(values), overwrite=True) / math.sqrt(6)


def _bends(values: Floats) -> Floats:
    """Return the absolute second differences of a curve."""
    return by_blocks(
        lambda before, value, after: np.abs((after - value) - (value - before)), values[:-2], values[1:-1], values[2:]
    )


def typical_move(values: Floats) -> float:
    """Return the median distance between consecutive values; NaN for a single value.

    >>> typical_move(np.array([1.0, 2.0, 4.0, 3.0]))
    1.0
    """
    moves = np.diff(values)
    return median(np.abs(moves, out=moves), overwrite=True)


def is_scatter(values: Floats, times: float, *, deviations: float = 6.0) -> bool:
    """Tell whether the noise of the logarithms is large enough that a point may stand `times` higher than another by chance.

    Args:
        values: Finite points around the one that stands out; non-positive ones do not count.
        times: How many times higher it stands.
        deviations: Noise deviations up to which the point counts as scatter.

    >>> is_scatter(np.array([1.0, 2.0, 0.9, 2.1, 1.1, 1.9, 0.8, 2.2]), 3.0), is_scatter(np.linspace(2.0, 1.0, 8), 3.0)
    (True, False)
    """
    logs = np.log(values[values > 0])
    return len(logs) >= ENOUGH_FOR_NOISE and bool(np.log(times) < deviations * difference_noise(logs))


def noise_without_peaks(values: Floats, rest: Mask) -> float:
    """Return the noise of a curve without some of its points, from the second differences that touch none of them.

    If fewer than three such differences are left, the remaining points are joined first.

    Args:
        values: Finite, shape (N,).
        rest: Which points count, shape (N,).

    >>> noise_without_peaks(np.array([1.0, 2.0, 3.0, 90.0, 4.0, 4.0, 4.0, 4.0]), np.arange(8) != 3)
    0.0
    """
    bends = _bends(values)[rest[:-2] & rest[1:-1] & rest[2:]]
    return MAD_TO_SIGMA * median(bends, overwrite=True) / math.sqrt(6) if len(bends) >= 3 else difference_noise(values[rest])


def log_noise(values: Floats) -> float:
    """Return the noise of a positive curve as a share of its level; 0 for a curve that is not positive.

    The noise of a loss shrinks with the loss, so the calm end of a curve says little about the scatter of its start.

    Args:
        values: Finite, shape (N,), three at least.
    """
    return difference_noise(np.log(values)) if values.min() > 0 else 0.0


def parts_of(values: Floats, parts: int = PARTS) -> tuple[Steps, Floats]:
    """Return the first row and the median of each of `parts` parts of a curve, or up to twice as many.

    All parts have the same number of points, because shorter parts scatter more; the first also takes the remainder.

    Args:
        values: Finite, in the order of steps, shape (N,).
        parts: Number of parts; a curve of less than twice as many points stays as it is.

    >>> parts_of(np.array([9.0, 4.0, 3.0, 2.0, 1.0]), 2)
    (array([0, 3]), array([4. , 1.5]))
    """
    width = max(1, len(values) // parts)
    if width == 1:
        return np.arange(len(values)), np.asarray(values, np.float64)
    first = width + len(values) % width
    levels = np.append(median(values[:first]), medians_of_rows(values[first:], width))
    return np.append(0, np.arange(first, len(values), width)), levels


def means_of_parts(values: Floats, parts: int = PARTS) -> Floats:
    """Return the means of the parts that parts_of makes; they scatter a fifth less than medians, but a spike moves them.

    Args:
        values: Finite, in the order of steps, shape (N,).
        parts: As in parts_of.

    >>> means_of_parts(np.array([9.0, 4.0, 2.0, 2.0, 1.0]), 2).tolist()
    [5.0, 1.5]
    """
    width = max(1, len(values) // parts)
    first = width + len(values) % width
    if width == 1:
        return np.asarray(values, np.float64)
    return np.append(np.mean(values[:first]), np.mean(values[first:].reshape(-1, width), axis=1))


def trimmed_noise(values: Floats) -> float:
    """Return the noise of a curve from its smaller second differences, which exclude spikes and a steep start.

    Args:
        values: Finite, shape (N,), two at least; two points give 0.
    """
    bends = np.sort(np.abs(np.diff(values, 2) / math.sqrt(6)))
    smaller = bends[: max(1, int(TRIM * len(bends)))]
    return TRIMMED_TO_SIGMA * math.sqrt(float(np.mean(np.square(smaller)))) if len(smaller) else 0.0


def is_zero_but_for_rounding(values: Floats) -> bool:
    """Tell whether a loss is within float32's rounding of zero at every point, and not exactly zero at all of them.

    The loss of a policy is if its advantages are normalized to a mean of zero. It says nothing about progress, and an update
    whose advantages are all zero has a gradient of zero.

    >>> is_zero_but_for_rounding(np.array([0.0, -3.7e-9])), is_zero_but_for_rounding(np.zeros(2))
    (True, False)
    """
    return bool(0 < np.abs(values).max(initial=0.0) <= ROUNDING)


def begins_at_zero(values: Floats) -> bool:
    """Tell whether the first loss is zero up to rounding and not all are: such a loss is no distance from unlearnt data.

    The loss of a policy is zero before its first update: the probability ratio is 1 and the advantages have a mean of zero
    (GRPO). It then goes below zero or grows. A zero that a log writes before its first loss is followed by values of the usual
    size or more.

    >>> begins_at_zero(np.array([0.0, 1e-4, 3e-4, 6e-4, 1e-3, 2e-3, 3e-3])), begins_at_zero(np.zeros(2))
    (True, False)
    >>> begins_at_zero(np.array([0.0, 4.5, 4.1, 3.8, 3.5, 9.0, 12.0]))
    False
    """
    if not len(values) or abs(float(values[0])) > ROUNDING or not values.any():
        return False
    sizes = np.abs(values)
    return bool(values.min() < 0) or median(sizes[1:4]) <= median(sizes) / 2


def looks_like_a_score(values: Floats, *, min_points: int = 5) -> bool:
    """Tell whether a curve rises from its first level on and levels off, as an accuracy, a percentage or a reward does.

    It lies between 0 and 1, or between 0 and 100 and ends above 50, or begins below zero and ends above. Its second half gains
    less than its first, no single step makes most of the rise, and hardly any step goes back.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_points: Fewer points have no shape.
    """
    if len(values) < min_points:
        return False
    _, levels = parts_of(values, PARTS // 4)
    rise, middle = float(levels[-1] - levels[0]), len(levels) // 2
    is_bounded = values.min() >= 0 and (values.max() <= 1 or 50 < levels[-1] <= values.max() <= 100)
    if not (is_bounded or levels[0] < 0 < levels[-1]) or rise <= 0.2 * float(np.abs(levels).max()):
        return False
    gains = np.diff(levels)
    levels_off = levels[middle] - levels[0] > 0.6 * rise
    return bool(levels_off and gains.max() < 0.8 * rise and -gains[gains < 0].sum() < 0.2 * rise)


def rank_trend(values: Floats) -> float:
    """Return how steadily a curve rises, in standard deviations of pure noise; negative if it falls (Mann 1945, Kendall 1975).

    >>> round(rank_trend(np.array([5.0, 4.0, 3.0, 2.0, 1.0])), 2)
    -2.2
    """
    count = len(values)
    first, second = np.triu_indices(count, 1)
    score = float(np.sign(values[second] - values[first]).sum())
    return float(np.sign(score)) * max(0.0, abs(score) - 1) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def begins_with_its_run(steps: Steps) -> bool:
    """Tell whether a log starts with its run: within its own logging interval, or within the first twentieth of its steps.

    >>> begins_with_its_run(np.array([50, 100, 150])), begins_with_its_run(np.array([6900, 6910, 6920]))
    (True, False)
    """
    if len(steps) < 2:
        return False
    return bool(steps[0] <= max(1.5 * median(np.diff(steps)), 0.05 * float(steps[-1])))


def deviations_from_past(
    series: Series, *, min_deviation: float, relative: float = 0.0, history: int = 5, k: float = 6.0
) -> tuple[Floats, Floats]:
    """Return the distance of each cell from the median of all before it, in usual deviations, and that median; both (T, P).

    The unit is `k` robust deviations of the cells before, but at least `min_deviation` and at least `relative` of their median,
    so that 1 is the limit. A cell within those two minima is measured by them alone, because it cannot exceed the limit. NaN for
    the first `history` finite cells; if that would leave no more than one cell, for the first half of them, at least three.
    """
    away, middle = np.full(series.values.shape, np.nan), np.full(series.values.shape, np.nan)
    for column in range(len(series.labels)):
        rows = np.flatnonzero(series.finite_in(column))
        values = series.values[rows, column].tolist()
        known = history if len(values) > history + 1 else max(3, len(values) // 2)
        before = sorted(values[:known])
        for row, value in zip(rows[known:].tolist(), values[known:], strict=True):
            center = (before[(len(before) - 1) // 2] + before[len(before) // 2]) / 2
            unit = max(min_deviation, relative * abs(center))
            if abs(value - center) > unit:
                unit = max(unit, k * MAD_TO_SIGMA * median(np.abs(np.array(before) - center)))
            away[row, column], middle[row, column] = (value - center) / unit, center
            insort(before, value)
    return away, middle


def resolution(values: Floats) -> Floats:
    """Return the distance between neighbouring numbers in the coarsest notation that writes each number, shape (N,).

    Two notations are known: decimals, and bfloat16, in which a loss near 3 moves by 1/64. A number may have few decimals by
    chance: only the smallest step among many numbers of a log shows its rounding.

    >>> resolution(np.array([3.28, 3.3]))
    array([0.01, 0.1 ])
    """
    return by_blocks(lambda block: np.maximum(decimal_step(block), bfloat16_step(block)), values)


def decimal_step(values: Floats, *, max_decimals: int = 8, slack: float = 1e-14) -> Floats:
    """Return the decimal step of each number, 10 to the minus its number of decimals; 0 if it has more than `max_decimals`.

    Args:
        values: Finite numbers, shape (N,).
        max_decimals: Longest decimals that count as rounded on purpose.
        slack: Largest relative distance of a shifted number from a whole number: float64 keeps nearly 16 digits.
    """
    steps = np.zeros(len(values))
    for rows in blocks(len(values)):
        for decimals in range(max_decimals, -1, -1):
            with np.errstate(over="ignore", invalid="ignore"):
                shifted = values[rows] * 10.0**decimals
                short = np.abs(shifted - np.rint(shifted)) <= slack * np.abs(shifted)
            steps[rows][short] = 10.0**-decimals
    return steps


def least_decimal_step(values: Floats) -> float:
    """Return the smallest of the steps that decimal_step returns."""
    return min(float(decimal_step(values[rows]).min()) for rows in blocks(len(values)))


def bfloat16_step(values: Floats) -> Floats:
    """Return the distance to the next bfloat16 for each number that is a bfloat16, else 0, shape (N,)."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    exact = (single == values) & (single.view(np.uint32) & BFLOAT16_TAIL == 0) & (values != 0)
    _, exponent = np.frexp(np.where(exact, values, 1.0))
    return np.where(exact, np.ldexp(1.0, exponent - 1 - BFLOAT16_DIGITS), 0.0)


def wilson_interval(hits: float, of: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson 1927, JASA 22:209).

    Unlike the normal approximation it stays within 0 to 1 and is meaningful for zero hits.

    Args:
        hits: Number of hits; an expected number if only that is known.
        of: Size of the sample, at least 1.
        z: Quantile of the normal distribution; the default is that of 97.5 %.

    >>> [round(end, 4) for end in wilson_interval(0, 10)]
    [0.0, 0.2775]
    """
    share, weight = hits / of, z * z / of
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / of + weight / (4 * of)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
