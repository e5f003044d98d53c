"""Columns of numbers, in which *not recorded* and *recorded as NaN* are two things."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.importers.tables.parse_number import MAX_STEP, number

NO_STEP = -1
_PLAIN = {float, int}
_SPARSE = {float, int, type(None)}


class Numbers(Struct, frozen=True, eq=False):
    """One column of N cells.

    Attributes:
        values: Shape (N,); NaN where not recorded.
        recorded: Shape (N,); whether the cell holds a number, NaN among them.
    """

    values: NDArray[np.float64]
    recorded: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many cells hold a number."""
        return int(np.count_nonzero(self.recorded))

    def only(self, kept: NDArray[np.bool_]) -> "Numbers":
        """Return the column with every cell outside `kept` not recorded."""
        return Numbers(np.where(kept, self.values, np.nan), self.recorded & kept)

    def at(self, places: NDArray[np.int64]) -> "Numbers":
        """Return the cells at `places`, in their order."""
        return Numbers(self.values[places], self.recorded[places])

    def times(self, factor: float) -> "Numbers":
        """Return the column in another unit."""
        return Numbers(self.values * factor, self.recorded)


def numbers(cells: Sequence[Any]) -> Numbers:
    """Return JSON values or None as a column; what is neither a number nor its text is not recorded.

    >>> numbers([1, None, "2.5", "x", True]).recorded.tolist()
    [True, False, True, False, False]
    """
    types = set(map(type, cells))
    if not types <= _SPARSE:
        return numbers([number(cell) for cell in cells])
    try:
        values = np.array(cells, np.float64)
    except OverflowError:  # an integer beyond every float
        return numbers([number(cell) for cell in cells])
    recorded = np.ones(len(values), bool) if types <= _PLAIN else np.array([cell is not None for cell in cells], bool)
    return Numbers(values, recorded)


def carried(steps: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each row the step of the last row up to it whose step is known, 0 where there is none yet.

    >>> carried(np.array([9, 10, 9, 20]), np.array([False, True, False, True])).tolist()
    [0, 10, 10, 20]
    """
    places = np.where(known & (steps != NO_STEP), np.arange(len(steps)), -1)
    latest = np.maximum.accumulate(places) if len(steps) else places
    return np.where(latest >= 0, steps[latest], 0)


def nothing(size: int) -> Numbers:
    """Return a column in which no cell is recorded."""
    return Numbers(np.full(size, np.nan), np.zeros(size, bool))


def filled(first: Numbers, second: Numbers) -> Numbers:
    """Return a column, its cells that are not recorded taken from another."""
    return Numbers(np.where(first.recorded, first.values, second.values), first.recorded | second.recorded)


def whole(values: NDArray[np.float64]) -> Numbers:
    """Return a column in which every cell is recorded."""
    return Numbers(values, np.ones(len(values), bool))


def ratio(part: Numbers, of: Numbers) -> Numbers | None:
    """Return one column over another where both hold numbers and the second is above 0, None where that is nowhere."""
    known = part.recorded & of.recorded & (of.values > 0)
    if not known.any():
        return None
    return Numbers(np.divide(part.values, of.values, out=np.full(len(known), np.nan), where=known), known)


def aligned(series: Mapping[str, tuple[NDArray[np.int64], Numbers]]) -> tuple[NDArray[np.int64], dict[str, Numbers]]:
    """Return series that have steps of their own as columns over all steps; of two cells at one step the later is held.

    Args:
        series: Steps, shape (N,), and N cells by name; cells at `NO_STEP` are left out.
    """
    known = [steps[steps != NO_STEP] for steps, _ in series.values()]
    every = np.unique(np.concatenate(known)) if known else np.array([], np.int64)
    made = {}
    for name, (steps, column) in series.items():
        kept = column.recorded & (steps != NO_STEP)
        places = np.searchsorted(every, steps[kept])
        made[name] = nothing(len(every))
        made[name].values[places] = column.values[kept]
        made[name].recorded[places] = True
    return every, made


def steps_from(column: Numbers) -> NDArray[np.int64]:
    """Return steps, `NO_STEP` where the value cannot be one: not recorded, negative, broken, not finite, too large.

    >>> steps_from(numbers([1000.0, 0.5, None, -1, float("nan")])).tolist()
    [1000, -1, -1, -1, -1]
    """
    values = np.where(column.recorded, column.values, -1.0)
    with np.errstate(invalid="ignore"):
        good = (values >= 0) & (values <= MAX_STEP) & (values == np.floor(values))
    return np.where(good, values, NO_STEP).astype(np.int64)


def without_placeholders(column: Numbers, *, share: float = 0.3, min_gaps: int = 3) -> Numbers | None:
    """Return the column without its NaN where NaN only says *nothing was recorded here*, None where NaN means NaN.

    A loss that blew up is NaN from some step to the end, or now and then. A column of rare evaluations written by a data
    frame is NaN between its numbers.

    Args:
        column: In the order of the file.
        share: Share of NaN, among the cells up to the last number, from which on NaN means nothing. Evaluating every
            second row gives nearly 0.5; losses that overflow under a loss scaler stay below 0.1. A column without a
            number says nothing at all.
        min_gaps: Fewer NaN than this before the last number show no habit.
    """
    broken = column.recorded & np.isnan(column.values)
    if not broken.any():
        return None
    good = np.flatnonzero(column.recorded & ~broken)
    if len(good):
        end = int(good[-1])
        between = int(np.count_nonzero(broken[:end]))
        if between < min_gaps or between <= share * np.count_nonzero(column.recorded[: end + 1]):
            return None
    return column.only(~broken)


def fullest(positions: Iterable[int], columns: Mapping[int, Numbers]) -> int:
    """Return the position of the column with most numbers; of two as full the first."""
    return max(positions, key=lambda position: columns[position].count)
