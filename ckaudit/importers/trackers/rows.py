"""Rows that a tracker logged, one per call: members at any depth become points, at the update that the row names.

Such a tracker counts its own calls unless the program passes a step. Many programs also log the update as a value of the row,
such as `train/global_step`: that is then the step. A row without it gets the step of the last row that had it.
"""

import json
import math
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckaudit.errors import UsageError
from ckaudit.importers.names import catalogue_name, shorten_name, writable
from ckaudit.importers.tables.numbers import MAX_STEP
from ckaudit.importers.trackers.points import NO_TIME, LoggedSeries, PointCollector, Whole
from ckaudit.importers.trackers.tracked import TrackedRun

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_HISTOGRAMS = {"histogram", "trackio.histogram"}
_NOT_AN_UPDATE = -1
MAX_DEPTH = 8
MAX_GOING_BACK = 5
"""Maximum number of resumes of one run; a counter that goes back more often restarts in each epoch."""


class RowCollector:
    """Collects the rows of one run in the order of its log."""

    def __init__(self, tracker: str) -> None:
        """Start without rows; `tracker` names the tracker whose own step each row has."""
        self._tracker = tracker
        self._points = PointCollector()
        self._own, self._times = array("q"), array("d")
        self._histograms: list[tuple[int, str, list[float], list[float]]] = []

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._own)

    def begin(self, step: int | None, time: float = NO_TIME) -> None:
        """Begin a row with the tracker's own step."""
        self._own.append(_NOT_AN_UPDATE if step is None else step)
        self._times.append(time)

    def take(self, name: str, value: Any, *, depth: int = MAX_DEPTH) -> None:
        """Add a member to the current row: a number, a word for NaN or infinity, a histogram, or an object of members."""
        if isinstance(value, float | int) and not isinstance(value, bool):
            self.number(name, _finite_or_not(value))
        elif isinstance(value, str):
            if value in _WORDS:
                self.number(name, _WORDS[value])
        elif isinstance(value, dict) and "_type" in value:
            if value["_type"] not in _HISTOGRAMS:
                return
            counts, edges = _numbers(value.get("values")), _numbers(value.get("bins"))
            packed = value.get("packedBins")
            if isinstance(packed, dict) and len(ends := _numbers([packed.get("min"), packed.get("size")])) == 2:
                edges = [ends[0] + index * ends[1] for index in range(len(counts) + 1)]
            if counts:
                self._histograms.append((len(self._own) - 1, name, edges, counts))
        elif isinstance(value, dict) and depth:
            for key, member in value.items():
                self.take(f"{name}.{key}" if name else str(key), member, depth=depth - 1)

    def number(self, name: str, value: float) -> None:
        """Add a number to the current row."""
        self._points.add(name, len(self._own) - 1, value, self._times[-1])

    def tracked(self, name: str, columns: Mapping[str, str]) -> TrackedRun:
        """Return the run, with its rows at their updates.

        Raises:
            UsageError: Where `columns` names a step that no row has.
        """
        series = {writable(key): points for key, points in self._points.series().items()}
        steps, notes = self._steps(series, columns.get("step", ""))
        run = TrackedRun(writable(name), {key: _at(points, steps) for key, points in series.items()}, notes=notes)
        lost = (
            len(np.unique(np.concatenate([points.steps[steps[points.steps] < 0] for points in series.values()]))) if series else 0
        )
        if lost:
            run.notes.append(f"{lost:,} rows come before the first update that is known, and were left out")
        for row, histogram, edges, counts in self._histograms:
            run.layers.take_histogram(int(steps[row]), histogram, edges, counts)
        return run

    def _steps(self, series: Mapping[str, LoggedSeries], wanted: str) -> tuple[Whole, list[str]]:
        """Return the update of each row, and notes on its origin."""
        if wanted and wanted not in series:
            raise UsageError(
                f"the step is to come from {shorten_name(wanted)!r}, which is not there", hint="Look at its spelling."
            )
        own = np.array(self._own, np.int64)
        named = [key for key in series if catalogue_name(key) == "step"] if not wanted else [wanted]
        passed = []
        for name in sorted(named, key=lambda key: -len(series[key].steps)):
            steps = _carried(series[name], len(own))
            if wanted or (np.diff(steps[steps >= 0]) < 0).sum() <= MAX_GOING_BACK:
                return steps, [f"steps from {shorten_name(name)}: {self._tracker} counts calls of its own"]
            passed.append(name)
        notes = [f"{shorten_name(key)} starts again too often to count updates" for key in passed]
        if (own == np.arange(len(own))).all():
            note = (
                f"no series holds the update: steps are {self._tracker}'s count of calls, from 0; name one with --map step=NAME"
            )
        else:
            note = f"no series holds the update: steps are those that the program passed to {self._tracker}"
        return own, [*notes, note]


def json_of(text: str | bytes) -> Any:
    """Return parsed JSON, which may hold bare NaN and infinities, or None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _finite_or_not(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _numbers(values: Any) -> list[float]:
    """Return a list of numbers; empty where the value is not one."""
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        return []
    return [_finite_or_not(value) for value in values]


def _carried(series: LoggedSeries, rows: int) -> Whole:
    """Return the integer of each row: its own, else that of the last row with one; -1 before the first."""
    values = series.values
    whole = (values >= 0) & (values <= MAX_STEP) & (values == np.floor(values))
    steps = np.full(rows, _NOT_AN_UPDATE, np.int64)
    steps[series.steps[whole]] = values[whole].astype(np.int64)
    known = np.where(steps >= 0, np.arange(rows), -1)
    last = np.maximum.accumulate(known) if rows else known
    return np.where(last >= 0, steps[last], _NOT_AN_UPDATE)


def _at(series: LoggedSeries, steps: Whole) -> LoggedSeries:
    """Return points whose steps are row numbers, at the updates of these rows."""
    own = steps[series.steps]
    held = own >= 0
    return LoggedSeries(own[held], series.values[held], series.times[held], series.order[held])
