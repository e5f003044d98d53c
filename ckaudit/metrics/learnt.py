"""How much a run has learnt since a step."""

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Series


def learnt_since(loss: Series, step: int, *, until: int | None = None, around: int = 10) -> float:
    """Return the share of the loss around a step that is gone at a later one; 0 where too few points lie between to tell.

    Args:
        loss: A series of one column.
        step: From when on.
        until: Up to when; None: to the end.
        around: Points on either side of the step, and before the later one, that a median is taken of.
    """
    rows = np.flatnonzero(loss.finite[:, 0])
    steps, values = loss.steps[rows], loss.values[rows, 0]
    place = int(np.searchsorted(steps, step))
    end = len(values) if until is None else int(np.searchsorted(steps, until, side="right"))
    if end < place + 2 * around:
        return 0.0
    before, after = median(values[max(0, place - around) : place + around]), median(values[end - around : end])
    return float(1 - after / before) if before > 0 else 0.0
