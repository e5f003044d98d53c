"""Reductions of cells to one number: over a row, over the past of a cell, and over consecutive windows."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from ckaudit.run.medians import median
from ckaudit.run.robust import least_decimal_step
from ckaudit.run.series import Floats, Mask, Series, Steps, single


def across(series: Series, reduce: Callable[..., Floats], name: str, unit: str) -> Series:
    """Reduce the finite cells of each row to one column; not recorded if a row has none.

    Args:
        series: Shape (T, P).
        reduce: A numpy function that ignores NaN, such as `np.nanmax`.
        name: Name of the column.
        unit: Its unit.
    """
    known: Mask = np.any(series.finite, axis=1)
    values = np.full(len(series.steps), np.nan)
    if known.any():
        values[known] = reduce(np.where(series.finite, series.values, np.nan)[known], axis=1)
    return single(name, unit, series.steps, values, known)


def row_medians(values: Floats) -> Floats:
    """Return the median of the finite cells of each row of an array (T, P), shape (T,); NaN for a row without any.

    >>> row_medians(np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [2.0, nan]
    """
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    finite, width = np.isfinite(values), values.shape[1]
    if finite.all():
        ordered = np.sort(values, axis=1)
        return np.asarray((ordered[:, (width - 1) // 2] + ordered[:, width // 2]) / 2)
    ordered = np.sort(np.where(finite, values, np.nan), axis=1)  # NaN sorts to the end
    counts, rows = finite.sum(axis=1), np.arange(len(values))
    return np.asarray((ordered[rows, np.maximum(counts - 1, 0) // 2] + ordered[rows, counts // 2]) / 2)


def running_medians(values: Floats, window: int, *, piece: int = 8_192) -> Floats:
    """Return the median of each `window` consecutive values, shape (T - window + 1,), in pieces to limit memory.

    >>> running_medians(np.array([1.0, 5.0, 2.0, 3.0]), 3).tolist()
    [2.0, 3.0]
    """
    windows = np.lib.stride_tricks.sliding_window_view(values, window)
    medians = np.empty(len(windows))
    for first in range(0, len(windows), piece):
        medians[first : first + piece] = np.median(windows[first : first + piece], axis=1)
    return medians


def over_past(series: Series, history: int, *, window: int = 50, reach: float = 0.0) -> Floats:
    """Return each cell relative to the median of the finite ones before it in its column, shape (T, P).

    Args:
        series: Any series.
        history: Finite cells that must come before; NaN until then, and if their median is not positive.
        window: Largest number of past finite cells.
        reach: Share of a cell's step before which cells are outdated, if there are `history` later ones: with logarithmic spacing
            most checkpoints belong to the first steps.
    """
    ratio = np.full(series.values.shape, np.nan)
    for column in range(len(series.labels)):
        known = np.flatnonzero(series.finite_in(column))
        values = series.values[known, column]
        before = np.full(len(known), np.nan)
        steps = series.steps[known]
        oldest = np.searchsorted(steps, reach * steps)
        for row in range(history, min(window, len(known))):
            before[row] = median(values[min(oldest[row], row - history) : row])
        if len(known) > window:
            before[window:] = running_medians(values[:-1], window)
        positive = before > 0
        ratio[known[positive], column] = values[positive] / before[positive]
    return ratio


# Consecutive windows with one number each reduce a million points to a few thousand.
def tumbling(series: Series, reduce: Callable[[Floats], Floats], *, window: int) -> Series:
    """Reduce each whole window of finite points of a series' first column to one number at the window's last step.

    Windows are counted in points from the first one on, so that a value never changes later.

    Args:
        series: Series whose first column counts.
        reduce: From shape (W, window) to shape (W,).
        window: Points per window; the last, incomplete window is left out.
    """
    steps, values = windows(series, window)
    with np.errstate(all="ignore"):
        return single(series.name, series.unit, steps[:, -1], reduce(values))


def windows(series: Series, window: int) -> tuple[Steps, Floats]:
    """Return steps and values of each whole window, both of shape (W, window)."""
    steps, values = series.finite_points() if series.labels else (series.steps[:0], np.empty(0))
    whole = len(values) // window * window
    return steps[:whole].reshape(-1, window), values[:whole].reshape(-1, window)


def without_repeats(series: Series, *, min_changes: int = 2, min_steps: float = 20.0) -> Series:
    """Return a series whose columns hold each value once that is logged again until the next measurement.

    A column is of that kind where its values change at least `min_changes` times, mostly after two rows or more, and by
    `min_steps` of their last decimal or more: numbers that are equal because they were rounded change by less.

    Args:
        series: A quantity that is measured more rarely than it is logged, such as a held-out loss.
        min_changes: Fewest changes that show the pattern.
        min_steps: Smallest median change, in units of the last decimal.
    """
    recorded = series.recorded
    for column in range(len(series.labels)):
        rows = np.flatnonzero(series.finite_in(column))
        values = series.values[rows, column]
        changes = np.flatnonzero(np.diff(values) != 0) + 1
        if len(changes) < min_changes or np.median(np.diff(changes, prepend=0)) < 2 or not values.all():
            continue  # a zero is written where nothing was measured
        if np.median(np.abs(np.diff(values)[changes - 1])) >= min_steps * least_decimal_step(values):
            recorded = recorded.copy()
            recorded[np.delete(rows, [0, *changes]), column] = False
    if recorded is series.recorded:
        return series
    return replace(series, values=np.where(recorded, series.values, np.nan), recorded=recorded).recorded_rows()
