"""Errors in a text log as events and rates: lines of one incident are one event; a rate counts the events of 24 hours."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ckaudit.importers.tables.numbers import Numbers
from ckaudit.importers.text.assemble_runs import LogPart, TextRun
from ckaudit.importers.text.error_lines import WORDS, ErrorLine
from ckaudit.importers.text.line_patterns import Floats

DAY = 86_400.0
MAX_SECONDS_APART = 300.0  # s; the lines of one incident, on all ranks and in retries, come within minutes

HEARTBEAT = "heartbeat"
NO_TIMES = "the log tells no times, so its errors were not counted by the day, but for those behind its last step"


class ErrorEvent(Struct):
    """One event: lines of one kind between two lines with steps, on any ranks.

    Attributes:
        kind: A key of `WORDS`.
        row: The last line with a step before it; 0 where there is none.
        seen: Its lines.
    """

    kind: str
    row: int
    seen: list[ErrorLine]

    @property
    def time(self) -> float | None:
        """When it began, in Unix seconds; None where no line has a time."""
        return next((sighting.mark.time for sighting in self.seen if sighting.mark.time is not None), None)

    @property
    def ranks(self) -> int:
        """The number of ranks or nodes that logged it, at least one."""
        return max(1, len({sighting.mark.who for sighting in self.seen} - {""}))


def error_events(sightings: Sequence[ErrorLine], lines: npt.ArrayLike) -> list[ErrorEvent]:
    """Group the lines that report errors into events.

    Args:
        sightings: In the order of the log.
        lines: Numbers of the lines with steps, ascending.
    """
    rows = np.searchsorted(np.asarray(lines, np.int64), [sighting.line for sighting in sightings], side="right") - 1
    troubles: list[ErrorEvent] = []
    latest: dict[str, ErrorEvent] = {}
    for sighting, row in zip(sightings, np.maximum(rows, 0).tolist(), strict=True):
        before = latest.get(sighting.kind)
        if before is None or before.row != row or _is_later(before.seen[-1], sighting):
            latest[sighting.kind] = ErrorEvent(sighting.kind, row, [])
            troubles.append(latest[sighting.kind])
        latest[sighting.kind].seen.append(sighting)
    # An event that only reports a failure is dropped where another event between the same two steps says which.
    explained = {trouble.row for trouble in troubles if not all(line.consequence for line in trouble.seen)}
    return [trouble for trouble in troubles if trouble.row not in explained or not all(line.consequence for line in trouble.seen)]


def _is_later(one: ErrorLine, other: ErrorLine) -> bool:
    return one.mark.time is not None and other.mark.time is not None and other.mark.time - one.mark.time > MAX_SECONDS_APART


def add_rates(run: TextRun, troubles: Sequence[ErrorEvent], clock: Floats | None) -> list[str]:
    """Add the number of events in the last 24 hours to each line of a run, and return notes on them.

    Args:
        run: Gets columns such as error_event_rate/oom.
        troubles: Its events; their rows count the lines of all parts.
        clock: Time of each line, shape (N,), ascending; None where the log has no times.
    """
    notes = [f"errors: {note}" for note in _notes(troubles)]
    lost = [trouble for trouble in troubles if trouble.kind == HEARTBEAT]
    others = [trouble for trouble in troubles if trouble.kind != HEARTBEAT]
    size = sum(len(part.rows.steps) for part in run.parts)
    if lost:
        missing = np.zeros(size)
        for trouble in lost:
            missing[trouble.row] = max(missing[trouble.row], trouble.ranks)
        _spread(run, "heartbeat_missing", missing)
    if others and clock is None:
        notes.append(NO_TIMES)
    for kind, rate in error_rates(others, size, clock).items():
        _spread(run, f"error_event_rate/{kind}", rate)
    return notes


def error_rates(events: Sequence[ErrorEvent], size: int, clock: Floats | None) -> dict[str, Floats]:
    """Return the number of events of each kind in the last 24 hours at each line, shape (N,); NaN where unknown.

    Without times, only events after the last line are counted: the process ended with them, within a day of that line.

    Args:
        events: Their rows are numbers of lines.
        size: N.
        clock: Time of each line, shape (N,), ascending; None where the log has no times.
    """
    if clock is None:
        at_end = Counter(event.kind for event in events if event.row == size - 1)
        return {kind: np.append(np.full(size - 1, np.nan), count) for kind, count in at_end.items()}
    rates = {}
    for kind in dict.fromkeys(event.kind for event in events):
        those = [event for event in events if event.kind == kind]
        times = np.array([event.time or clock[event.row] for event in those])
        rates[kind] = of_last_day(np.array([event.row for event in those], np.int64), times, clock)
    return rates


def of_last_day(rows: np.ndarray, times: np.ndarray, clock: Floats) -> Floats:
    """Return the number of events in the 24 hours before each line.

    Args:
        rows: Line of each event, ascending; the event counts from that line on.
        times: Time of each event, in the seconds of `clock`.
        clock: Time of each line, shape (N,).
    """
    counts = np.zeros(len(clock))
    for row, time in zip(rows.tolist(), times.tolist(), strict=True):
        until = int(np.searchsorted(clock[row:], time + DAY, side="left"))
        counts[row : row + max(until, 1)] += 1
    return counts


def clock_of(parts: Sequence[LogPart]) -> tuple[Floats | None, str]:
    """Return the time of each line of a run, shape (N,), and a note on it; None where the log has neither times nor durations.

    Where lines have no time, step durations are added up; the time between two starts is then unknown.
    """
    marked = np.concatenate([part.rows.origin.times for part in parts])
    if not np.isnan(marked).all():
        # A line without a time gets that of the previous line, and times never decrease.
        first = marked[~np.isnan(marked)][0]
        return np.asarray(np.maximum.accumulate(np.where(np.isnan(marked), -np.inf, marked)).clip(min=first)), ""
    passed = [_passed(part) for part in parts]
    known = [seconds for seconds in passed if seconds is not None]
    if not parts or len(known) < len(passed):
        return None, ""
    return np.cumsum(np.concatenate(known)), "the log has no times: its days were counted by the durations of its steps"


def _passed(part: LogPart) -> Floats | None:
    """Return the seconds from line to line by step durations, or None where no duration is recorded."""
    column = part.rows.columns.get("step_time")
    if column is None or not column.recorded.any():
        return None
    typical = float(np.median(column.values[column.recorded]))
    return np.where(column.recorded, column.values, typical) * np.maximum(np.diff(part.rows.steps, prepend=part.rows.steps[0]), 0)


def _spread(run: TextRun, name: str, values: Floats) -> None:
    """Add a column over all lines of a run to its parts; NaN is not recorded."""
    begin = 0
    for part in run.parts:
        end = begin + len(part.rows.steps)
        part.rows.columns[name] = Numbers(values[begin:end], ~np.isnan(values[begin:end]))
        begin = end


def _note(kind: str, troubles: Sequence[ErrorEvent]) -> str:
    """Return a note on events of one kind: their number and ranks, and a quote of the first line."""
    seen = [line for trouble in troubles for line in trouble.seen]
    first = next((line for line in seen if not line.consequence), seen[0])
    at = "" if first.mark.time is None else f" at {datetime.fromtimestamp(first.mark.time, UTC):%Y-%m-%d %H:%M:%S}"
    who = f" on {first.mark.who}" if first.mark.who else ""
    ranks = len({line.mark.who for line in seen} - {""})
    spread = f" on {ranks:,} ranks or nodes" if ranks > 1 else ""
    times = "once" if len(troubles) == 1 else f"{len(troubles):,} times"
    lines = f", {len(seen):,} lines{spread}" if len(seen) > 1 else ""
    return f"{WORDS[kind]} {times}{lines}, first in line {first.line:,}{who}{at}: {first.quoted!r}"


def _notes(troubles: Sequence[ErrorEvent]) -> list[str]:
    """Return a note on each kind of event."""
    kinds = dict.fromkeys(trouble.kind for trouble in troubles)
    return [_note(kind, [trouble for trouble in troubles if trouble.kind == kind]) for kind in kinds]


def summary_of(sightings: Sequence[ErrorLine], *, max_errors: int = 4) -> str:
    """Return a sentence on the errors in a log without a known step; empty where there are none."""
    return "; ".join(_notes(error_events(sightings, []))[:max_errors])
