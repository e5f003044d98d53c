"""Medians of short arrays: of a whole array, of each point and its neighbours, of equal parts."""

import itertools
import math

import numpy as np
import numpy.typing as npt

from ckaudit.run.series import Floats, Steps


def median(values: npt.ArrayLike, *, overwrite: bool = False) -> float:
    """Return the median of all values, five times as fast as `numpy.median` for short arrays; NaN if empty or if one is NaN.

    Args:
        values: Of any shape.
        overwrite: Sort the array in place, because the caller no longer needs it.

    >>> median([3.0, 1.0, 2.0, 10.0])
    2.5
    """
    ordered = (np.asarray(values) if overwrite else np.array(values)).ravel()
    ordered.sort()  # NaN sorts to the end
    if not ordered.size or np.isnan(ordered[-1]):
        return math.nan
    middle = ordered.size // 2
    return float(ordered[middle]) if ordered.size % 2 else float((ordered[middle - 1] + ordered[middle]) / 2)


def medians_of_three(values: Floats) -> Floats:
    """Return the median of each point and its two neighbours; an end point has one neighbour.

    >>> medians_of_three(np.array([4.0, 3.0, 9.0, 2.0])).tolist()
    [3.5, 4.0, 3.0, 5.5]
    """
    if len(values) < 2:
        return values.copy()
    low, high = np.minimum(values[:-1], values[1:]), np.maximum(values[:-1], values[1:])
    inside = np.maximum(low[:-1], np.minimum(high[:-1], values[2:]))
    return np.concatenate([[values[:2].mean()], inside, [values[-2:].mean()]])


def medians_of_parts(values: Floats, count: int) -> Floats:
    """Return the medians of the `count` parts that `numpy.array_split` makes of finite values; NaN for an empty part.

    >>> medians_of_parts(np.array([1.0, 2.0, 9.0, 4.0, 6.0]), 2).tolist()
    [2.0, 5.0]
    """
    width, longer = divmod(len(values), count)
    if not width:
        return np.concatenate([values, np.full(count - longer, np.nan)])
    cut = longer * (width + 1)
    return np.concatenate([medians_of_rows(values[:cut], width + 1), medians_of_rows(values[cut:], width)])


def medians_of_rows(values: Floats, width: int) -> Floats:
    """Return the medians of `width` consecutive finite values each.

    >>> medians_of_rows(np.array([9.0, 1.0, 2.0, 4.0]), 2).tolist()
    [5.0, 3.0]
    """
    ordered, middle = np.sort(values.reshape(-1, width), axis=1), width // 2
    return np.asarray(ordered[:, middle] if width % 2 else (ordered[:, middle - 1] + ordered[:, middle]) / 2)


def thirds_of_steps(steps: Steps) -> list[Steps]:
    """Return the rows of each third of the step range of a log; an empty third gets the last row before it.

    With logarithmic spacing, the last third of the points covers most of the steps: a quantity that merely grows with the steps
    would seem to diverge there.

    Args:
        steps: Rising, shape (T,), one at least.

    >>> [part.tolist() for part in thirds_of_steps(np.array([0, 10, 100, 400, 500, 900, 1000]))]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    edges = steps[0] + (steps[-1] - steps[0]) * np.arange(1, 3) / 3
    cuts = [0, *np.searchsorted(steps, edges, side="right").tolist(), len(steps)]
    return [np.arange(start if start < end else max(0, end - 1), end) for start, end in itertools.pairwise(cuts)]
