"""How far weights have moved, estimated from statistics and sampled elements in checkpoints."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Grids
from ckaudit.run.series import Floats, Mask, Series, empty

Since = Literal["first", "previous"]


def change(series: Series, size: Series, since: Since) -> Series:
    """Return each column's move since its first finite row or the row before, relative to the tensor's root mean square.

    Args:
        series: A statistic of each tensor, labelled by the tensor or by one of its percentiles.
        size: Root mean square of each tensor's elements; the largest so far counts.
        since: The row that it is compared with.
    """
    scales, moved = _scales(series, size), np.full(series.values.shape, np.nan)
    if series.finite.all():
        before = series.values[:1] if since == "first" else series.values[:-1]
        moved[1:] = np.abs(series.values[1:] - before)
    else:
        for column in range(len(series.labels)):
            rows = np.flatnonzero(series.finite_in(column))
            known = series.values[rows, column]
            moved[rows[1:], column] = np.abs(known[1:] - (known[:1] if since == "first" else known[:-1]))
    with np.errstate(all="ignore"):
        values = np.where(moved == 0, 0.0, moved / scales)
    return replace(series, values=values, recorded=~np.isnan(values))


def _scales(series: Series, size: Series) -> Floats:
    """Return the largest root mean square so far of each cell's tensor; NaN if unknown."""
    scales = np.full(series.values.shape, np.nan)
    if not len(size.steps):
        return scales
    shown = np.fmax.accumulate(np.where(size.finite, size.values, np.nan), axis=0)
    if size.labels == series.labels and np.array_equal(size.steps, series.steps) and (np.diff(size.steps) > 0).all():
        return shown
    place = {label: column for column, label in enumerate(size.labels)}
    row = np.searchsorted(size.steps, series.steps, side="right") - 1
    pairs = [(column, place[name]) for column, label in enumerate(series.labels) if (name := tensor_of(label)) in place]
    if pairs:
        columns, theirs = np.array(pairs).T
        scales[:, columns] = np.where(row[:, None] >= 0, shown[np.ix_(row, theirs)], np.nan)
    return scales


def tensor_of(label: str) -> str:
    """Return the tensor of a label: the label itself, or the tensor of a percentile."""
    return label.partition("/percentile.")[0]


def by_tensor(series: Series) -> Series:
    """Return the maximum over each tensor's columns, such as its percentiles."""
    names = [tensor_of(label) for label in series.labels]
    place = {name: column for column, name in enumerate(dict.fromkeys(names))}
    if not place:
        return series
    columns = np.array([place[name] for name in names])
    order = np.argsort(columns, kind="stable")
    shown = np.where(series.finite, series.values, -np.inf)[:, order]
    values = np.maximum.reduceat(shown, np.searchsorted(columns[order], np.arange(len(place))), axis=1)
    recorded = np.isfinite(values)
    return replace(series, labels=tuple(place), values=np.where(recorded, values, np.nan), recorded=recorded)


def grid_movement(grids: Grids, since: Since) -> Series:
    """Return the move of each tensor's sampled elements since its first grid or the one before, relative to their norm."""
    reference: dict[str, tuple[Floats, float]] = {}
    cells: list[float] = []
    for label, values in zip(grids.labels, grids.values, strict=True):
        before, size = reference.get(label, (None, 0.0))
        if before is None or since == "previous":
            reference[label] = values, _norm(values)
        moved = _norm(values - before) if before is not None and before.shape == values.shape else math.nan
        cells.append(moved / size if size > 0 else 0.0 if moved == 0 else math.nan)
    return series_of_grids("sampled movement", grids, cells)


def series_of_grids(name: str, grids: Grids, cells: Sequence[float]) -> Series:
    """Return a number per grid as a table, shape (C, P); NaN counts as not recorded."""
    steps, labels = np.array(sorted(set(grids.steps)), np.int64), tuple(dict.fromkeys(grids.labels))
    rows, columns = {int(step): row for row, step in enumerate(steps)}, {label: column for column, label in enumerate(labels)}
    table = np.full((len(steps), len(labels)), np.nan)
    for step, label, cell in zip(grids.steps, grids.labels, cells, strict=True):
        table[rows[step], columns[label]] = cell
    return Series(name, "1", steps, labels, table, np.isfinite(table))


def _norm(values: Floats) -> float:
    flat = values.ravel()
    return math.sqrt(flat.dot(flat))


def largest_of(several: Sequence[Series]) -> Series:
    """Return the cell-wise maximum of several tables over the recorded values."""
    series = several[0] if several else empty("largest")
    for other in several[1:]:
        if not series or not other:
            series = series or other
            continue
        series, beside = filled(series, other), filled(other, series)
        order = [beside.places[label] for label in series.labels]
        values = np.fmax(series.values, beside.values[:, order])
        series = replace(series, values=values)
    return series


def cells_like(like: Series, other: Series) -> Floats:
    """Return the cells of one table in the shape of another, NaN where it has none."""
    cells = np.full(like.values.shape, np.nan)
    place = {label: column for column, label in enumerate(other.labels)}
    columns = [(ours, place[label]) for ours, label in enumerate(like.labels) if label in place]
    if columns and len(other.steps):
        rows = np.minimum(np.searchsorted(other.steps, like.steps), len(other.steps) - 1)
        known = np.flatnonzero(other.steps[rows] == like.steps)
        ours, theirs = np.array(columns).T
        cells[np.ix_(known, ours)] = other.values[np.ix_(rows[known], theirs)]
    return cells


def is_coarse(values: Floats, *, digits: int = 5) -> Mask:
    """Tell which numbers have so few significant digits that a small change would not show.

    >>> is_coarse(np.array([0.0012, 0.123456789, 0.0, 1.0])).tolist()
    [True, False, True, True]
    """
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log10(np.abs(values)))
        rounded = np.round(values * 10.0 ** (digits - 1 - exponent)) / 10.0 ** (digits - 1 - exponent)
    close = np.abs(rounded - values) <= 4 * np.finfo(float).eps * np.abs(values)
    return np.asarray(close | (values == 0) | ~np.isfinite(values))
