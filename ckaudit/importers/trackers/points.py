"""Points as trackers store them, each with a name, a step and a value, joined to one line per step.

A tracker's store has no lines: each series has points of its own. After a run went back, the points that it logs again are
stored beside those logged first; the order of the log distinguishes them.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.importers.tables.merge import MergedLines
from ckaudit.importers.tables.numbers import MAX_STEP

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_TIME = float("nan")


class LoggedSeries(Struct, frozen=True):
    """Points of one name, in the order of the log.

    Attributes:
        steps: Shape (N,).
        values: Shape (N,).
        times: Shape (N,); Unix time in s, NaN where unknown.
        order: Shape (N,); position of each point in the log.
    """

    steps: Whole
    values: Floats
    times: Floats
    order: Whole


class PointCollector:
    """Collects the points of one run in the order of its log."""

    def __init__(self) -> None:
        """Start without points."""
        self._names: dict[str, int] = {}
        self._owners, self._steps = array("q"), array("q")
        self._values, self._times = array("d"), array("d")

    def add(self, name: str, step: int, value: float, time: float = NO_TIME) -> None:
        """Add one point."""
        self._owners.append(self.slot(name))
        self._steps.append(step)
        self._values.append(value)
        self._times.append(time)

    def slot(self, name: str) -> int:
        """Return the number that represents a name in `appends`."""
        return self._names.setdefault(name, len(self._names))

    def appends(self) -> tuple[Callable[[int], None], Callable[[int], None], Callable[[float], None], Callable[[float], None]]:
        """Return the functions that append slot, step, value and time, for loops over millions of points; call all four each."""
        return self._owners.append, self._steps.append, self._values.append, self._times.append

    def extend(self, name: str, steps: Sequence[int], values: Sequence[float], times: Sequence[float]) -> None:
        """Add many points of one name.

        Raises:
            OverflowError: Where a number is too large; then none of the points is added.
        """
        whole, measured, clock = array("q", steps), array("d", values), array("d", times)
        self._owners.extend([self.slot(name)] * len(whole))
        self._steps.extend(whole)
        self._values.extend(measured)
        self._times.extend(clock)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self._steps)

    def series(self, *, by_time: bool = False) -> dict[str, LoggedSeries]:
        """Return the points of each name, in the order in which names first appeared.

        Args:
            by_time: Whether times give the order of the log, as in stores that keep each series separately.
        """
        owners, steps = np.array(self._owners, np.int64), np.array(self._steps, np.int64)
        values, times = np.array(self._values, np.float64), np.array(self._times, np.float64)
        order = np.arange(len(steps), dtype=np.int64)
        if by_time and len(steps):
            order[np.argsort(times, kind="stable")] = np.arange(len(steps))
        sorted_by_owner = np.lexsort((order, owners))
        bounds = np.searchsorted(owners[sorted_by_owner], np.arange(len(self._names) + 1))
        series = {}
        for name, number in self._names.items():
            rows = sorted_by_owner[bounds[number] : bounds[number + 1]]
            series[name] = LoggedSeries(steps[rows], values[rows], times[rows], order[rows])
        return series


def renumbered(series: LoggedSeries) -> LoggedSeries:
    """Return points numbered from 1, for a writer without steps that put all of them at step 0."""
    return LoggedSeries(np.arange(1, len(series.steps) + 1), series.values, series.times, series.order)


def is_all_at_step_zero(series: LoggedSeries) -> bool:
    """Tell whether there are several points, all at step 0."""
    return len(series.steps) > 1 and not series.steps.any()


def merge_series(series: Iterable[tuple[str, LoggedSeries]], starts: Sequence[tuple[float, int]] = ()) -> MergedLines:
    """Join series to lines.

    Where a step lies below earlier ones in the log, and a value from there on differs from an earlier one, the run went back: a
    new session begins at that step, even if its first values are the same as before.

    Args:
        series: Points by catalogue name.
        starts: For each restart, its time and the first step that is logged again.
    """
    named = list(series)
    steps, owners, values, times, order = _flat(named)
    held = np.flatnonzero((steps >= 0) & (steps <= MAX_STEP))
    log = held[np.argsort(order[held], kind="stable")]
    steps, owners, values, times = steps[log], owners[log], values[log], times[log]
    # Positions in the log at which a new session begins, without the first session.
    restarts = []
    for time, first in starts:
        position = int(np.argmax(times >= time)) if len(times) else 0
        if position and steps[:position].max() >= first:
            restarts.append(position)
    bounds: list[int] = []
    if restarts or _has_conflicts(steps, owners, values):
        bounds = _walked(steps.tolist(), owners.tolist(), values.tolist(), restarts)
    sessions = np.zeros(len(steps), np.int64)
    sessions[bounds] = 1
    sessions = np.cumsum(sessions)
    resumes = tuple((int(steps[:bound][sessions[:bound] == sessions[bound - 1]].max()), int(steps[bound])) for bound in bounds)
    table, replaced = _table([name for name, _ in named], steps, sessions, owners, values, times)
    return MergedLines(table, resumes, replaced, 0)


def _flat(named: Sequence[tuple[str, LoggedSeries]]) -> tuple[Whole, Whole, Floats, Floats, Whole]:
    if not named:
        none, empty = np.zeros(0, np.int64), np.zeros(0)
        return none, none, empty, empty, none
    serieses = [series for _, series in named]
    return (
        np.concatenate([series.steps for series in serieses]),
        np.repeat(np.arange(len(serieses)), [len(series.steps) for series in serieses]),
        np.concatenate([series.values for series in serieses]),
        np.concatenate([series.times for series in serieses]),
        np.concatenate([series.order for series in serieses]),
    )


def _has_conflicts(steps: Whole, owners: Whole, values: Floats) -> bool:
    """Tell whether any name has two different values at one step."""
    by_place = np.lexsort((steps, owners))
    steps, owners, values = steps[by_place], owners[by_place], values[by_place]
    same = (np.diff(steps) == 0) & (np.diff(owners) == 0)
    return bool((same & _differs(values[:-1], values[1:])).any())


def _differs(one: Floats, other: Floats) -> NDArray[np.bool_]:
    return np.asarray(~((one == other) | (np.isnan(one) & np.isnan(other))))


# Walks over the log point by point; only logs with a restart or with conflicting values need this.
def _walked(steps: Sequence[int], owners: Sequence[int], values: Sequence[float], restarts: Iterable[int]) -> list[int]:
    known = set(restarts)
    bounds: list[int] = []
    held: dict[tuple[int, int], float] = {}
    begin = last = 0
    highest, back = -1, -1  # back: where the log went below a step that the session had reached; -1: it is past that again
    for position, (step, owner, value) in enumerate(zip(steps, owners, values, strict=True)):
        if position in known:
            bounds.append(position)
            held, highest, back, begin = {}, -1, -1, position
        elif step > highest:
            back = -1
        elif step < last:
            back = position
        before = held.get((step, owner), value)
        if back > begin and before != value and (before == before or value == value):  # noqa: PLR0124  NaN equals NaN here
            bounds.append(back)
            held = {(steps[place], owners[place]): values[place] for place in range(back, position)}
            highest, begin, back = max(steps[back : position + 1]), back, -1
        held[step, owner] = value
        highest, last = max(highest, step), step
    return bounds


def _table(
    names: Sequence[str], steps: Whole, sessions: Whole, owners: Whole, values: Floats, times: Floats
) -> tuple[LineTable, int]:
    """Return lines, and the number of values that another value at the same step replaced."""
    by_line = np.lexsort((steps, sessions))
    ordered_steps, ordered_sessions = steps[by_line], sessions[by_line]
    fresh = np.ones(len(steps), bool)
    fresh[1:] = (np.diff(ordered_steps) != 0) | (np.diff(ordered_sessions) != 0)
    lines = np.empty(len(steps), np.int64)
    lines[by_line] = np.cumsum(fresh) - 1
    count = int(fresh.sum())
    cells = np.full((len(names) + 1, count), np.nan)
    recorded = np.zeros((len(names) + 1, count), bool)
    by_cell = np.lexsort((lines, owners))
    same = (np.diff(lines[by_cell]) == 0) & (np.diff(owners[by_cell]) == 0)
    replaced = int((same & _differs(values[by_cell][:-1], values[by_cell][1:])).sum())
    cells[owners, lines] = values
    recorded[owners, lines] = True
    timed = np.flatnonzero(~np.isnan(times))[::-1]  # the first time at a step counts: later ones are of an evaluation
    cells[-1, lines[timed]] = times[timed]
    recorded[-1, lines[timed]] = True
    rows_kept = [*range(len(names)), *([len(names)] if len(timed) else [])]
    known = recorded[rows_kept]
    table = LineTable(
        ordered_steps[fresh],
        ordered_sessions[fresh],
        tuple([*names, "time"][row] for row in rows_kept),
        cells[rows_kept],
        None if known.all() else known,
        {},
    )
    return table, replaced
