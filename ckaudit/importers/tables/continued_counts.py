"""Steps that begin anew within one training, as where `fit` is called again: they are counted through."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.tables.numbers import Numbers

FALLEN = 0.8
"""Share of its first value to which a loss must have fallen before a later beginning can be told from it."""

MAX_LOST = 0.25
"""A training goes on where it begins with less of its fall lost than this: batches differ, and an epoch's mean is late."""

MAX_LAST_POINTS, PARTS = 3, 5
"""The level at which a training ended is the median of its last three points, or of its last fifth if that is less."""


def lost_share(loss: Numbers, begin: int, again: int) -> float | None:
    """Return the share of what a training had learnt that is gone where something begins anew; None where it cannot be told.

    A training that goes on begins where it ended, at 0; a new one begins about as high as the one before it did, at 1.

    Args:
        loss: By row, shape (N,).
        begin: Row at which the training before began.
        again: Row at which something begins anew.
    """
    rows = np.flatnonzero(loss.recorded & np.isfinite(loss.values))
    place, first = np.searchsorted(rows, [again, begin]).tolist()
    if not first < place < len(rows):
        return None
    last = max(1, min(MAX_LAST_POINTS, (place - first) // PARTS))
    begun, ended = float(loss.values[rows[first]]), float(np.median(loss.values[rows[place - last : place]]))
    return None if not 0 < ended <= FALLEN * begun else (float(loss.values[rows[place]]) - ended) / (begun - ended)


def loss_goes_on(loss: Numbers, begin: int, again: int) -> bool:
    """Tell whether a training plainly goes on where something begins anew."""
    lost = lost_share(loss, begin, again)
    return lost is not None and lost < MAX_LOST


def counted_through(steps: NDArray[np.int64], loss: Numbers, anew: Iterable[int]) -> tuple[NDArray[np.int64], list[int]]:
    """Return steps that go on where a training does, and the rows at which they had begun anew all the same.

    Args:
        steps: Step of each row.
        loss: Its loss.
        anew: Rows at which steps go back to the beginning, ascending.
    """
    counted, rows, begin, gone_on = steps.copy(), [*anew], 0, []
    for row, end in pairwise([*rows, len(steps)]):
        if loss_goes_on(loss, begin, row):
            gap = np.diff(steps[row:end])
            from_zero = int(gap[gap > 0].min(initial=1)) if steps[row] == 0 else 0
            counted[row:end] += counted[row - 1] + from_zero
            gone_on.append(row)
        else:
            begin = row
    return counted, gone_on


def note_on_counts(times: int) -> list[str]:
    """Return a note on steps that were counted through."""
    how_often = "once" if times == 1 else f"{times:,} times"
    return [f"steps begin anew {how_often} while the loss goes on from where it was: they were counted through"] if times else []
