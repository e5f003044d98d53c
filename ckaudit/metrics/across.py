"""All labels of a step reduced to one number: over ranks, layers, heads or tensors."""

from collections.abc import Callable

import numpy as np

from ckaudit.run.series import Floats, Mask, Series, single


def across(series: Series, reduce: Callable[..., Floats], name: str, unit: str) -> Series:
    """Reduce the finite cells of each row to one column; not recorded where a row has none.

    Args:
        series: Shape (T, P).
        reduce: One of numpy's functions that leave NaN out, such as `np.nanmax`.
        name: Name of the column.
        unit: Its unit.
    """
    known: Mask = np.any(series.finite, axis=1)
    values = np.full(len(series.steps), np.nan)
    if known.any():
        values[known] = reduce(np.where(series.finite, series.values, np.nan)[known], axis=1)
    return single(name, unit, series.steps, values, known)
