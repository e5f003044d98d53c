"""Windows side by side: one number for every so many points, so that a million of them stay a few thousand."""

from collections.abc import Callable

import numpy as np

from ckaudit.run.series import Floats, Series, Steps, single


def tumbling(series: Series, reduce: Callable[[Floats], Floats], *, window: int) -> Series:
    """Reduce each whole window of finite points of a series' first column to one number, at the window's last step.

    Windows are counted in points from the first one on, so that a value never changes once it is there.

    Args:
        series: Its first column counts.
        reduce: From shape (W, window) to shape (W,).
        window: Points in a window; the last, unfinished one is left out.
    """
    steps, values = windows(series, window)
    with np.errstate(all="ignore"):
        return single(series.name, series.unit, steps[:, -1], reduce(values))


def windows(series: Series, window: int) -> tuple[Steps, Floats]:
    """Return steps and values of each whole window, both of shape (W, window)."""
    known = np.flatnonzero(series.finite[:, 0]) if series.labels else np.empty(0, np.int64)
    known = known[: len(known) // window * window]
    return series.steps[known].reshape(-1, window), series.values[known, :1].reshape(-1, window)
