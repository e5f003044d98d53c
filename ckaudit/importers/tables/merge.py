"""Log entries joined to one line per step; where steps go back and values differ, a resume begins."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isnan, nan

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.importers.importer import Row, rows_of
from ckaudit.importers.tables.continued_counts import counted_through, note_on_counts
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, counted, numbers, unrecorded_column
from ckaudit.importers.tables.torn_steps import fallen_back, far_ahead, note_on_torn

MAX_RESUMES = 100
"""Columns that go back more often are joined entry by entry."""

Entry = tuple[int, Mapping[str, float | str]]
Values = Sequence[float | None]


class MergedLines(Struct, frozen=True):
    """Lines ordered by session, then step, and counts of irregularities.

    Attributes:
        table: One line per session and step.
        resumes: For each resume, the last step before it and the first step after it.
        replaced: Number of values that occur twice at one step with different numbers; the later one was taken.
        disordered: Number of entries with a step below the previous entry's and no value that differs from an earlier one.
        torn: Number of entries that were left out, because their step can only be a fragment of one.
        begun_anew: How often steps began anew while the loss went on, and were counted through.
    """

    table: LineTable
    resumes: tuple[tuple[int, int], ...]
    replaced: int
    disordered: int
    torn: int = 0
    begun_anew: int = 0

    @property
    def rows(self) -> list[Row]:
        """The lines as dictionaries."""
        return rows_of(self.table)


def merge(entries: Iterable[Entry]) -> MergedLines:
    """Join entries by step.

    Entries of one step complete each other. Where a step goes back and has another value than before, the run went back and a
    new session begins: by the contract, it replaces the older one from its first step on.

    Args:
        entries: Step and values by catalogue name, in the order of the log.

    >>> merge([(1, {"val_loss": 2.0}), (1, {"train_loss_raw": 3.0})]).rows
    [{'step': 1, 'val_loss': 2.0, 'train_loss_raw': 3.0}]
    """
    sessions: list[dict[int, Row]] = [{}]
    resumes: list[tuple[int, int]] = []
    replaced = disordered = 0
    last = -1
    logged = list(entries)
    steps = np.array([step for step, _ in logged], np.int64)
    torn = set(far_ahead(steps))
    for number, (step, values) in enumerate(logged):
        if number in torn:
            continue
        row = sessions[-1].get(step)
        if row is None:
            sessions[-1][step] = {"step": step, **values}
            disordered += step < last
        elif not (changed := _changed(row, values)):
            row.update(values)
            disordered += step < last
        elif step < last and (alone := fallen_back(steps, [number])):
            torn.update(alone)
            continue
        elif step < last:
            resumes.append((last, step))
            sessions.append({step: {"step": step, **values}})
        else:
            row.update(values)
            replaced += changed
        last = step
    return MergedLines(table_of(sessions), tuple(resumes), replaced, disordered, len(torn))


def merge_columns(steps: Sequence[int | None], series: Mapping[str, Values]) -> MergedLines:
    """Join rows by step as `merge` does; this is much faster where steps never go back.

    Args:
        steps: Step of each row; a row without one is left out.
        series: Values of each row by catalogue name, None where nothing was recorded.
    """
    places = np.array([NO_STEP if step is None else step for step in steps], np.int64)
    return merge_numbers(places, {name: numbers(values) for name, values in series.items()})


def merge_numbers(steps: NDArray[np.int64], series: Mapping[str, Numbers]) -> MergedLines:
    """Join columns by step, as `merge_columns` does.

    Args:
        steps: Shape (N,); step of each row; `NO_STEP`: the row is left out.
        series: Columns of N cells by catalogue name.
    """
    filled = np.logical_or.reduce([column.recorded for column in series.values()]) if series else np.zeros(len(steps), bool)
    placed = (steps != NO_STEP) & filled
    if not placed.all():
        steps = steps[placed]
        series = {name: column.at(placed) for name, column in series.items()}
    gone_on: list[int] = []
    loss = series.get("train_loss_raw") or series.get("val_loss")
    if loss is not None and (anew := (np.flatnonzero((np.diff(steps) < 0) & (steps[1:] <= steps[:1])) + 1).tolist()):
        steps, gone_on = counted_through(steps, loss, anew)
    seams = steps[gone_on]
    rise = np.diff(steps)
    if (rise < 0).any():
        return replace(_with_resumes(steps, series) or merge(_entries(steps, series)), begun_anew=len(gone_on))
    names = tuple(name for name, column in series.items() if column.recorded.any())
    columns, replaced = [series[name] for name in names], 0
    if not rise.all():
        lines = np.concatenate([[0], np.cumsum(rise > 0)])  # (N,) line of each row
        steps = steps[np.concatenate([[True], rise > 0])]
        by_line = [_by_line(column, lines, len(steps)) for column in columns]
        columns, replaced = [column for column, _ in by_line], sum(changed for _, changed in by_line)
    shape = len(names), len(steps)
    values = np.array([column.values for column in columns], np.float64).reshape(shape)
    recorded = np.array([column.recorded for column in columns], bool).reshape(shape)
    sessions = np.searchsorted(seams, steps, side="right")  # the time between two of them is no time of a step
    table = LineTable(steps, sessions, names, values, None if recorded.all() else recorded, {})
    return MergedLines(table, (), replaced, 0, begun_anew=len(gone_on))


def _with_resumes(steps: NDArray[np.int64], series: Mapping[str, Numbers]) -> MergedLines | None:
    """Join columns whose steps go back a few times and repeat with other values; None where they have other irregularities."""
    starts = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(starts) > MAX_RESUMES or far_ahead(steps) or any(fallen_back(steps, [int(start)]) for start in starts):
        return None
    series = {name: column for name, column in series.items() if column.recorded.any()}
    ends = [*starts.tolist(), len(steps)]
    parts: list[LineTable] = []
    replaced = 0
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        cells = {name: Numbers(column.values[first:end], column.recorded[first:end]) for name, column in series.items()}
        joined = merge_numbers(steps[first:end], cells)
        if parts and not _differ_at_start(parts[-1], joined.table):
            return None
        parts.append(joined.table)
        replaced += joined.replaced
    resumes = tuple((int(before.steps[-1]), int(after.steps[0])) for before, after in pairwise(parts))
    return MergedLines(_one_after_the_other(tuple(series), parts), resumes, replaced, 0)


def _differ_at_start(before: LineTable, after: LineTable) -> bool:
    """Tell whether the first step of a table is in the previous one, with another value of the same name."""
    place = int(np.searchsorted(before.steps, after.steps[0]))
    if place == len(before.steps) or before.steps[place] != after.steps[0]:
        return False
    old, new = _line(before, place), _line(after, 0)
    return any(old[name] != new[name] and not (isnan(old[name]) and isnan(new[name])) for name in old.keys() & new.keys())


def _line(table: LineTable, row: int) -> dict[str, float]:
    return {
        name: float(table.values[place, row])
        for place, name in enumerate(table.names)
        if table.recorded is None or table.recorded[place, row]
    }


def _one_after_the_other(names: tuple[str, ...], parts: Sequence[LineTable]) -> LineTable:
    """Return the lines of several sessions as one table."""
    steps = np.concatenate([part.steps for part in parts])
    sessions = np.repeat(np.arange(len(parts), dtype=np.int64), [len(part.steps) for part in parts])
    values, recorded = np.full((len(names), len(steps)), nan), np.zeros((len(names), len(steps)), bool)
    end = 0
    for part in parts:
        begin, end = end, end + len(part.steps)
        for place, name in enumerate(part.names):
            row = names.index(name)
            values[row, begin:end] = part.values[place]
            recorded[row, begin:end] = True if part.recorded is None else part.recorded[place]
    return LineTable(steps, sessions, names, values, None if recorded.all() else recorded, {})


def _by_line(column: Numbers, lines: NDArray[np.int64], count: int) -> tuple[Numbers, int]:
    """Return a column by line, with the last of several cells per line, and the number of cells that were replaced."""
    values, places = column.values[column.recorded], lines[column.recorded]
    again = places[1:] == places[:-1]
    before, after = values[:-1][again], values[1:][again]
    replaced = int(np.count_nonzero((before != after) & ~(np.isnan(before) & np.isnan(after))))
    last = np.ones(len(places), bool)
    last[:-1] = ~again
    by_line = unrecorded_column(count)
    by_line.values[places[last]] = values[last]
    by_line.recorded[places[last]] = True
    return by_line, replaced


def _entries(steps: NDArray[np.int64], series: Mapping[str, Numbers]) -> Iterator[Entry]:
    names = list(series)
    cells = zip(*(column.values.tolist() for column in series.values()), strict=True)
    known = zip(*(column.recorded.tolist() for column in series.values()), strict=True)
    for step, row, is_known in zip(steps.tolist(), cells, known, strict=True):
        yield step, {name: value for name, value, is_there in zip(names, row, is_known, strict=True) if is_there}


def _with_nan(values: Iterable[float | str | None]) -> list[float | str]:
    return [nan if value is None else value for value in values]


def _changed(row: Row, values: Mapping[str, float | str]) -> int:
    """Count the values that differ from those in the row; NaN equals NaN."""
    return sum(name in row and repr(row[name]) != repr(value) for name, value in values.items())


def table_of(sessions: Sequence[Mapping[int, Row]]) -> LineTable:
    """Return the rows of all sessions, each in step order, as columns."""
    rows = [row for session in sessions for _, row in sorted(session.items())]
    places = [place for place, session in enumerate(sessions) for _ in session]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "step"]
    words = {name for name in names if any(isinstance(row.get(name), str) for row in rows)}
    values = [[row.get(name) for row in rows] for name in names if name not in words]
    recorded = np.array([[value is not None for value in column] for column in values], bool).reshape(len(values), len(rows))
    return LineTable(
        np.array([row["step"] for row in rows], np.int64),
        np.array(places, np.int64),
        tuple(name for name in names if name not in words),
        np.array(list(map(_with_nan, values)), float).reshape(recorded.shape),
        None if recorded.all() else recorded,
        {name: [None if (word := row.get(name)) is None else str(word) for row in rows] for name in names if name in words},
    )


def merge_notes(merged: MergedLines) -> list[str]:
    """Return notes on how the entries were joined; none where each step occurred once and in order."""
    notes = [*note_on_torn(merged.torn), *note_on_counts(merged.begun_anew)]
    if merged.resumes:
        before, after = merged.resumes[0]
        times = "once" if len(merged.resumes) == 1 else f"{len(merged.resumes):,} times"
        notes.append(
            f"steps go back {times}, first from {before:,} to {after:,}, and say something else: taken as a resume, what comes "
            "later holds from there on; if these are several runs, give each a file of its own"
        )
    if merged.replaced:
        notes.append(f"{counted(merged.replaced, 'value stands', 'values stand')} twice at one step: the later one was taken")
    if merged.disordered:
        one, many = "entry stands below its place", "entries stand below their place"
        notes.append(f"{counted(merged.disordered, one, many)} in the order of steps: sorted in")
    return notes
