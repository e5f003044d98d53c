"""Steps that begin anew within one training, as where `fit` is called again: they are counted through."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.tables.numbers import Numbers

FALLEN = 0.8
"""Share of its first value to which a loss must have fallen before a later beginning can be told from it."""

MAX_LOST, MIN_LOST = 0.25, 0.5
"""A training goes on if less of its fall is lost than the first share, and another begins if more is lost than the second."""

MAX_LAST_POINTS, PARTS = 3, 5
"""The level at which a training ended is the median of its last three points, or of its last fifth if that is less."""


class LossLevels:
    """The level of a loss at the places where something begins anew, such as the count of steps.

    A training that goes on begins where it ended, far below its own first loss; another one begins about as high as one before.
    """

    def __init__(self, loss: Numbers) -> None:
        """Begin with a training at the first row."""
        self._rows = np.flatnonzero(loss.recorded & np.isfinite(loss.values))
        self._values = loss.values[self._rows]
        self._first, self._own, self._highest = 0, -np.inf, -np.inf
        self.start(0)

    def start(self, row: int) -> None:
        """Note that another training begins at a row."""
        self._first = int(np.searchsorted(self._rows, row))
        if self._first < len(self._rows):
            self._own = float(self._values[self._first])
            self._highest = max(self._highest, self._own)

    def goes_on(self, row: int) -> bool:
        """Tell whether the training plainly goes on at a row."""
        lost = self._lost_share(row, self._own)
        return lost is not None and lost < MAX_LOST

    def begins_anew(self, row: int) -> bool:
        """Tell whether another training plainly begins at a row."""
        lost = self._lost_share(row, self._highest)
        return lost is not None and lost > MIN_LOST

    def _lost_share(self, row: int, begun: float) -> float | None:
        """Return the share of a fall from `begun` that is lost again at a row; None if the loss has hardly fallen."""
        place = int(np.searchsorted(self._rows, row))
        if not self._first < place < len(self._rows):
            return None
        last = max(1, min(MAX_LAST_POINTS, (place - self._first) // PARTS))
        ended = float(np.median(self._values[place - last : place]))
        return None if not 0 < ended <= FALLEN * begun else (float(self._values[place]) - ended) / (begun - ended)


def counted_through(steps: NDArray[np.int64], loss: Numbers, anew: Iterable[int]) -> tuple[NDArray[np.int64], list[int]]:
    """Return steps that go on where a training does, and the rows at which they had begun anew all the same.

    Args:
        steps: Step of each row.
        loss: Its loss.
        anew: Rows at which steps go back to the beginning, ascending.
    """
    levels, counted, gone_on = LossLevels(loss), steps.copy(), []
    for row, end in pairwise([*anew, len(steps)]):
        if levels.goes_on(row):
            gap = np.diff(steps[row:end])
            from_zero = int(gap[gap > 0].min(initial=1)) if steps[row] == 0 else 0
            counted[row:end] += counted[row - 1] + from_zero
            gone_on.append(row)
        else:
            levels.start(row)
    return counted, gone_on


def note_on_counts(times: int) -> list[str]:
    """Return a note on steps that were counted through."""
    how_often = "once" if times == 1 else f"{times:,} times"
    return [f"steps begin anew {how_often} while the loss goes on from where it was: they were counted through"] if times else []
