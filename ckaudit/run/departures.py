"""Departures: values that leave what they were before, for quantities that are told rarely."""

import numpy as np

from ckaudit.run.series import Floats, Series

SIGMA = 1.4826


def departures(series: Series, *, least: float, relative: float = 0.0, history: int = 5, k: float = 6.0) -> tuple[Floats, Floats]:
    """Return how far each cell is from the median of all before it, in units of what is usual, and that median; both (T, P).

    The unit is `k` robust deviations of the cells before, but at least `least` and at least `relative` of their median, so
    that 1 is the border. NaN before `history` finite cells.
    """
    away, middle = np.full(series.values.shape, np.nan), np.full(series.values.shape, np.nan)
    for column in range(len(series.labels)):
        rows = np.flatnonzero(series.finite[:, column])
        values = series.values[rows, column]
        for place in range(history, len(rows)):
            before = values[:place]
            usual = float(np.median(before))
            spread = k * SIGMA * float(np.median(np.abs(before - usual)))
            middle[rows[place], column] = usual
            away[rows[place], column] = (values[place] - usual) / max(spread, least, relative * abs(usual))
    return away, middle
