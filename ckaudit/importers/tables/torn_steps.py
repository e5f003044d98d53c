"""False steps: a line that lost its beginning, or was written into another line, may keep only some digits of its step."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ckaudit.importers.tables.numbers import counted

MAX_TORN_ROWS = 2  # left by one torn line: its beginning, and its end fused with the next line
FAR_BACK = 3  # usual step intervals; a run that restarted this far back would have logged more lines since
FAR_AHEAD = 50  # of these intervals; the digits of two fused steps make a number at least ten times as large


def fallen_back(steps: NDArray[np.int64], back: Iterable[int]) -> list[int]:
    """Return the rows that go back alone: later rows continue beyond the row before, which a restarted training does not do.

    Args:
        steps: Shape (N,), in the order of the log.
        back: Rows whose step lies below the previous one, and occurs in the log already.

    >>> fallen_back(np.array([7, 8, 9, 1, 10, 11]), [3]), fallen_back(np.array([7, 8, 9, 8, 9, 10]), [3])
    ([3], [])
    """
    torn: list[int] = []
    usual = _usual_rise(steps)
    for row in back:
        before = steps[row - 1]
        beyond = np.flatnonzero(steps[row + 1 : row + 1 + MAX_TORN_ROWS] > before)
        if beyond.size and before - steps[row] > FAR_BACK * usual:
            torn += range(row, row + 1 + int(beyond[0]))
    return torn


def far_ahead(steps: NDArray[np.int64]) -> list[int]:
    """Return the rows that lie far ahead alone, after which the log continues where it was before.

    Even in a short log, a run that logs at a fixed interval and restarted would not have skipped the steps up to the row ahead,
    and then continued with the very step that was due before it.

    >>> far_ahead(np.array([7, 8, 910, 10, 11])), far_ahead(np.array([7, 8, 10, 9, 11]))
    ([2], [])
    >>> far_ahead(np.array([1, 2, 3, 4, 15, 6, 7, 8])), far_ahead(np.array([1, 2, 3, 4, 5, 3, 4]))
    ([4], [])
    """
    falls = np.flatnonzero(np.diff(steps) < 0)
    falls = falls[falls > 0]
    before, ahead, behind = steps[falls - 1], steps[falls], steps[falls + 1]
    usual = _usual_rise(steps)
    alone = (behind >= before) & (ahead - before > FAR_AHEAD * np.maximum(behind - before, usual))
    rises = np.diff(steps)
    if (rises == usual).sum() > FAR_BACK and 2 * (rises == usual).sum() > len(rises):
        goes_on = (behind > before) & (behind - before <= 2 * usual)
        alone |= goes_on & (ahead - before > FAR_BACK * usual)
    return falls[alone].tolist()  # type: ignore[no-any-return]


def _usual_rise(steps: NDArray[np.int64]) -> float:
    rises = np.diff(steps)
    return float(np.median(rises[rises > 0])) if (rises > 0).any() else 1.0


def note_on_torn(count: int) -> list[str]:
    """Return a note on the rows that were left out; none where there are none."""
    what = counted(count, "line was", "lines were")
    return (
        [f"{what} left out: the step stands alone, far from those around it, as of lines that are torn or fused"] if count else []
    )
