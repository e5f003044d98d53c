"""Departures: values that leave what they were before, for quantities that are told rarely."""

from bisect import insort

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Series


def departures(
    series: Series, *, min_deviation: float, relative: float = 0.0, history: int = 5, k: float = 6.0
) -> tuple[Floats, Floats]:
    """Return how far each cell is from the median of all before it, in units of what is usual, and that median; both (T, P).

    The unit is `k` robust deviations of the cells before, but at least `min_deviation` and at least `relative` of their median,
    so that 1 is the border; a cell within those two is measured by them, for it cannot be beyond. NaN before `history` finite
    cells, or before half of them, but three, where no more than one would be left.
    """
    away, middle = np.full(series.values.shape, np.nan), np.full(series.values.shape, np.nan)
    for column in range(len(series.labels)):
        rows = np.flatnonzero(series.finite_in(column))
        values = series.values[rows, column].tolist()
        known = history if len(values) > history + 1 else max(3, len(values) // 2)
        before = sorted(values[:known])
        for row, value in zip(rows[known:].tolist(), values[known:], strict=True):
            usual = (before[(len(before) - 1) // 2] + before[len(before) // 2]) / 2
            unit = max(min_deviation, relative * abs(usual))
            if abs(value - usual) > unit:
                unit = max(unit, k * MAD_TO_SIGMA * median(np.abs(np.array(before) - usual)))
            away[row, column], middle[row, column] = (value - usual) / unit, usual
            insort(before, value)
    return away, middle
