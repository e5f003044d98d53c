"""How much a run has learnt since a step."""

import numpy as np

from ckaudit.run.series import Series


def learnt_since(loss: Series, step: int, *, around: int = 10) -> float:
    """Return the share of the loss around a step that is gone at the end; 0 where too few steps follow to tell.

    Args:
        loss: A series of one column.
        step: From when on.
        around: Points on either side of the step, and at the end, that a median is taken of.
    """
    rows = np.flatnonzero(loss.finite[:, 0])
    place = int(np.searchsorted(loss.steps[rows], step))
    values = loss.values[rows, 0]
    if len(values) < place + 2 * around:
        return 0.0
    before, after = np.median(values[max(0, place - around) : place + around]), np.median(values[-around:])
    return float(1 - after / before) if before > 0 else 0.0
