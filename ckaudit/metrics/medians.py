"""Medians: of what a row holds, and of what came before a cell."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series


def row_medians(values: Floats) -> Floats:
    """Return the median of the finite cells of each row, shape (T,), of an array (T, P); NaN where there are none.

    >>> row_medians(np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [2.0, nan]
    """
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    finite, width = np.isfinite(values), values.shape[1]
    if finite.all():
        ordered = np.sort(values, axis=1)
        return np.asarray((ordered[:, (width - 1) // 2] + ordered[:, width // 2]) / 2)
    ordered = np.sort(np.where(finite, values, np.nan), axis=1)  # NaN goes to the end
    counts, rows = finite.sum(axis=1), np.arange(len(values))
    return np.asarray((ordered[rows, np.maximum(counts - 1, 0) // 2] + ordered[rows, counts // 2]) / 2)


def over_past(series: Series, history: int, *, window: int = 50, reach: float = 0.0) -> Floats:
    """Return each cell over the median of the finite ones before it in its column, shape (T, P).

    Args:
        series: Any series.
        history: Finite cells that must come before; NaN until then, and where their median is not positive.
        window: Finite cells looked back on, at most.
        reach: Share of a cell's step before which cells are out of date, where there are `history` later ones: on a logarithmic
            cadence most checkpoints are of the first steps.
    """
    ratio = np.full(series.values.shape, np.nan)
    for column in range(len(series.labels)):
        known = np.flatnonzero(series.finite_in(column))
        values = series.values[known, column]
        before = np.full(len(known), np.nan)
        for row in range(history, min(window, len(known))):
            oldest = np.searchsorted(series.steps[known], reach * series.steps[known[row]])
            before[row] = median(values[min(oldest, row - history) : row])
        if len(known) > window:
            before[window:] = np.median(np.lib.stride_tricks.sliding_window_view(values[:-1], window), axis=1)
        positive = before > 0
        ratio[known[positive], column] = values[positive] / before[positive]
    return ratio
