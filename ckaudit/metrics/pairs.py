"""Two series on the same steps and labels: ratios, and one series that fills the gaps of another."""

import numpy as np
from msgspec.structs import replace

from ckaudit.run.run import Run
from ckaudit.run.series import Series, Steps, merged_steps, root_sum_square, single


def together(first: Series, second: Series) -> tuple[Series, Series]:
    """Return the parts of both series with shared steps and labels, in the order of `first`.

    If `second` has a step twice, its last row counts.
    """
    names = set(second.labels)
    first = first.only(names.__contains__)
    if first.labels != second.labels:
        place = {label: column for column, label in enumerate(second.labels)}
        second = _columns(second, [place[label] for label in first.labels])
    if np.array_equal(first.steps, second.steps):
        return first, second
    rows = np.searchsorted(second.steps, first.steps, side="right") - 1
    shared = (rows >= 0) & (second.steps[rows] == first.steps) if len(second.steps) else np.zeros(len(first.steps), bool)
    return _rows(first, np.flatnonzero(shared)), _rows(second, rows[shared])


def zeros_of_nonfinite_as_nan(series: Series, nonfinite: Series) -> Series:
    """Return a series with NaN where a writer gave 0 for a tensor with NaN or infinite elements: it added up the others, if any.

    Args:
        series: A norm or a spread, shape (C, P).
        nonfinite: Number of such elements, shape (C, P); empty if it was not counted.
    """
    if not nonfinite or not (nonfinite.values > 0).any() or not (series.values == 0).any():
        return series
    broken = {(int(nonfinite.steps[row]), nonfinite.labels[place]) for row, place in np.argwhere(nonfinite.values > 0).tolist()}
    values = series.values.copy()
    for row, place in np.argwhere(values == 0).tolist():
        if (int(series.steps[row]), series.labels[place]) in broken:
            values[row, place] = np.nan
    return replace(series, values=values)


def ratio(part: Series, whole: Series) -> Series:
    """Divide two series cell by cell where both are recorded.

    Not recorded where `whole` is 0; NaN if either is NaN.
    """
    part, whole = together(part, whole)
    recorded = part.recorded & whole.recorded & (whole.values != 0)
    with np.errstate(all="ignore"):
        values = np.where(recorded, part.values / whole.values, np.nan)
    return replace(part, values=values, recorded=recorded)


def filled(first: Series, second: Series) -> Series:
    """Return `first`, filled from `second` where it is not recorded, with all steps and labels of both."""
    if not second:
        return first
    if not first:
        return second
    if first.labels == second.labels and np.array_equal(first.steps, second.steps):
        values = np.where(first.recorded, first.values, second.values)
        return replace(first, values=values, recorded=first.recorded | second.recorded)
    labels = tuple(dict.fromkeys((*first.labels, *second.labels)))
    steps = merged_steps(first.steps, second.steps)
    values = np.full((len(steps), len(labels)), np.nan)
    recorded = np.zeros(values.shape, bool)
    place = {label: column for column, label in enumerate(labels)}
    for series in (second, first):
        rows, columns = np.nonzero(series.recorded)
        cells = np.searchsorted(steps, series.steps)[rows], np.array([place[label] for label in series.labels])[columns]
        values[cells] = series.values[rows, columns]
        recorded[cells] = True
    return replace(first, steps=steps, labels=labels, values=values, recorded=recorded)


def higher(first: Series, second: Series) -> Series:
    """Return the higher of two series of one label in each cell, or the only one that is recorded there."""
    either, other = filled(first, second), filled(second, first)
    if not first or not second:
        return either
    return replace(either, values=np.fmax(either.values, other.values))


def total(series: Series, name: str) -> Series:
    """Return the root sum of squares over all labels, recorded if every label recorded so far is."""
    if not series:
        return single(name, series.unit, series.steps[:0], series.values[:0, :0])
    return series.grouped([name] * len(series.labels), root_sum_square)


def relabelled(series: Series, label: str) -> Series:
    """Return a series of one column under another label; a series of several columns is unchanged."""
    return replace(series, labels=(label,)) if len(series.labels) == 1 else series


def logged_as(run: Run, name: str) -> Series:
    """Return the scalar of a name, labelled by that name; a column with that label counts alone."""
    logged = run.scalar(name)
    return relabelled(logged.only(name.__eq__) if name in logged.places else logged, name)


def _columns(series: Series, index: list[int]) -> Series:
    labels = tuple(series.labels[column] for column in index)
    return replace(series, labels=labels, values=series.values[:, index], recorded=series.recorded[:, index])


def _rows(series: Series, index: Steps) -> Series:
    return replace(series, steps=series.steps[index], values=series.values[index], recorded=series.recorded[index])


def in_order(series: Series, labels: list[str]) -> Series:
    """Return the named columns in this order."""
    place = {label: column for column, label in enumerate(series.labels)}
    return _columns(series, [place[label] for label in labels])
