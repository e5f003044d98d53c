"""Fewer points of a curve, and fewer columns of a map, so that what stands out for one step alone is still there.

A curve keeps the lowest and the highest value of each stretch: no value lies outside of what is drawn. The largest-triangle
method (Steinarsson 2013) keeps one point of each stretch, and of two spikes in one stretch it loses one.
"""

from itertools import pairwise

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Mask, Steps


def kept_points(values: Floats, points: int) -> Steps:
    """Return at most `points` rows of values (N,): the first, the last, and of each stretch its ends and what is not finite.

    >>> kept_points(np.array([0.0, 0, 0, 9, 0, 0, 0, -9, 0, 0]), 6).tolist()
    [0, 3, 5, 7, 9]
    """
    count = len(values)
    if count <= points:
        return np.arange(count)
    finite = np.isfinite(values)
    is_whole = bool(finite.all())
    edges = np.linspace(0, count, max(1, (points - 2) // (2 if is_whole else 3)) + 1).astype(int).tolist()
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    kept = {0, count - 1}
    for start, end in pairwise(edges):
        kept |= {start + int(low[start:end].argmin()), start + int(high[start:end].argmax())}
        if not is_whole:
            kept.add(start + int(finite[start:end].argmin()))
    return np.array(sorted(kept))


def kept_columns(values: Floats, recorded: Mask, columns: int) -> Steps:
    """Return at most `columns` rows of values (T, P): the first, the last, and of each stretch the one that stands out most.

    How far a row stands out is how many powers of ten one of its cells is from the median of that cell's column; a cell that
    was recorded, but is no finite number, stands out most of all.
    """
    count = len(values)
    if count <= columns:
        return np.arange(count)
    size = np.log10(np.maximum(np.abs(np.where(np.isfinite(values), values, 0.0)), 1e-30))
    known = recorded & np.isfinite(values)
    middle = np.array([median(size[known[:, place], place]) if known[:, place].any() else 0.0 for place in range(size.shape[1])])
    far = np.where(known, np.abs(size - middle), np.where(recorded, np.inf, -1.0)).max(axis=1)
    edges = np.linspace(1, count - 1, columns - 1).astype(int).tolist()
    return np.array([0, *(start + int(np.argmax(far[start:end])) for start, end in pairwise(edges) if end > start), count - 1])


def evenly(count: int, max_places: int) -> list[int]:
    """Return at most `max_places` places of `count`, evenly spread, with both ends.

    >>> evenly(10, 4), evenly(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= max_places:
        return list(range(count))
    return sorted({place * (count - 1) // (max_places - 1) for place in range(max_places)}) if max_places > 1 else [0]
