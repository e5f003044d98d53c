"""The valley under noisy points: it falls to the lowest one and rises from there, near to most of them."""

from statistics import median

import numpy as np

from ckaudit.run.series import Floats


def noise(values: Floats) -> float:
    r"""Return the robust standard deviation of points around their valley, 0 where they are one.

    $$\sigma = Q_{0.75}(|L_t - v_t|) / 1.1503$$

    The third quartile, not the median as in MAD: a valley passes through many of its points, which would make a few
    evaluations look exact. A quarter of the points may be wild. The divisor is the quartile of |x| for normal x.
    A curve that only falls, only rises, or does one after the other has no noise, however steep and however few its points.

    >>> noise(np.array([5.0, 3.0, 2.0, 2.1, 2.6]))
    0.0
    """
    return float(np.quantile(np.abs(values - valley(values)), 0.75)) / 1.1503 if len(values) else 0.0


def valley(values: Floats) -> Floats:
    """Return the falling and then rising curve through the lowest of `values`, shape (N,)."""
    lowest = int(np.argmin(values)) if len(values) else 0
    falling, rising = rising_fit(values[: lowest + 1][::-1])[::-1], rising_fit(values[lowest:])
    return np.concatenate((falling, rising[1:]))


def rising_fit(values: Floats) -> Floats:
    """Return a never falling curve with the least sum of absolute deviations from `values`, shape (N,).

    Neighbours out of order are pooled to their median until none are (Robertson & Wright 1973).
    """
    pools: list[list[float]] = []
    heights: list[float] = []
    for value in values.tolist():
        pool, height = [value], value
        while heights and heights[-1] > height:
            heights.pop()
            pool = sorted(pools.pop() + pool)
            height = median(pool)
        pools.append(pool)
        heights.append(height)
    return np.repeat(np.array(heights), [len(pool) for pool in pools])
