"""Runs assembled from the lines of a text log: lines of one step are joined, restarts and further runs are separated.

A log is written in order of time. Where its steps go back, the training was started again: from a checkpoint, which begins
another session of the same run, or from the beginning, which begins another run.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.importers.tables.continued_counts import counted_through, note_on_counts
from ckaudit.importers.tables.numbers import Numbers, counted, unrecorded_column
from ckaudit.importers.tables.torn_steps import fallen_back, far_ahead
from ckaudit.importers.text.line_patterns import NO_RANK, Ints
from ckaudit.importers.text.line_reader import StepLines

HELPER = "."  # prefix of columns that are only used while reading, and are not passed on
FEW_ROWS = 10  # a start that ended within so few lines is too short to judge


class LogPart(Struct):
    """The lines of one start of a training, in ascending order of steps.

    Attributes:
        rows: The lines; those of one step are joined.
        resumed: The step it was resumed from, where the log gives it.
    """

    rows: StepLines
    resumed: int | None = None


class TextRun(Struct):
    """One run of a log.

    Attributes:
        parts: Its starts, in order of time.
        notes: How its lines were assembled.
    """

    parts: list[LogPart]
    notes: list[str] = field(default_factory=list)

    @property
    def first_line(self) -> int:
        """Number of the first line with a step."""
        return int(self.parts[0].rows.origin.lines.min())

    @property
    def last_line(self) -> int:
        """Number of the last line with a step."""
        return int(self.parts[-1].rows.origin.lines.max())


def without_torn(rows: StepLines, starts: Sequence[int]) -> tuple[StepLines, int]:
    """Return the lines without those whose step can only be a fragment, and the number of these; reported starts stay."""
    ahead = far_ahead(rows.steps)
    rows = rows.at(np.delete(np.arange(len(rows.steps)), ahead)) if ahead else rows
    logged = _logged(rows, starts)
    back = [at for at in _cuts(rows, starts) if at not in logged and rows.steps[at] < rows.steps[at - 1]]
    torn = fallen_back(rows.steps, back)
    return rows.at(np.delete(np.arange(len(rows.steps)), torn)) if torn else rows, len(ahead) + len(set(torn))


def runs_of(rows: StepLines, starts: Sequence[int], resumes: Mapping[int, int]) -> list[TextRun]:
    """Split the lines of a log into runs and their starts.

    Args:
        rows: Lines with steps, with their columns by catalogue name.
        starts: Numbers of the lines on which the program reports a start or a loaded checkpoint.
        resumes: Step of each loaded checkpoint, by the number of the line that reports it.
    """
    rows, notes = _one_rank(rows)
    rows, replaced = merge_lines(rows, apart=starts)
    rows, cuts, counted_notes = _counted_through(rows, _cuts(rows, starts), starts, resumes)
    notes += counted_notes
    bounds = [0, *cuts, len(rows.steps)]
    pieces = [rows.at(np.arange(begin, end)) for begin, end in pairwise(bounds)] if cuts else [rows]
    runs: list[TextRun] = []
    for piece in pieces:
        after = runs[-1].last_line if runs else 0
        steps = [step for line, step in resumes.items() if after < line < piece.origin.lines[0]]
        resumed = steps[-1] if steps else None  # the last checkpoint that was loaded in between
        if not runs or (resumed is None and _is_beginning(runs[-1].parts[0].rows.steps) and _is_beginning(piece.steps)):
            runs.append(TextRun([LogPart(piece)]))
        else:
            runs[-1].parts.append(LogPart(piece, resumed))
    runs = _without_false_starts(runs)
    for run in runs:
        run.parts = [_in_order(part, run.notes) for part in run.parts]
        run.notes += _notes_on_parts(run)
    for number, (before, run) in enumerate(pairwise(runs), 1):
        if _same(run, before):
            run.notes.append(f"it says line by line what run {number} says: the file may hold one log twice")
    if replaced:
        notes.append(f"{counted(replaced, 'value stands', 'values stand')} twice at one step: the later one was taken")
    runs[0].notes = [*notes, *runs[0].notes]
    return runs


def merge_lines(rows: StepLines, *, apart: Sequence[int] = ()) -> tuple[StepLines, int]:
    """Join neighbouring lines of one step; of two values in one column the later one is taken.

    Args:
        rows: Lines with steps.
        apart: Numbers of lines across which nothing is joined.

    Returns:
        The lines, and the number of values that were replaced.
    """
    if not len(rows.steps):
        return rows, 0
    first = np.concatenate([[True], rows.steps[1:] != rows.steps[:-1]])
    after = np.searchsorted(rows.origin.lines, np.array(apart, np.int64))
    first[after[after < len(first)]] = True
    if first.all():
        return rows, 0
    group = np.cumsum(first) - 1
    size = int(group[-1]) + 1
    replaced = 0
    columns = {}
    for name, column in rows.columns.items():
        at = group[column.recorded]
        values, known = np.full(size, np.nan), np.zeros(size, bool)
        values[at] = column.values[column.recorded]
        known[at] = True
        logged, taken = column.values[column.recorded], values[at]
        replaced += int(((logged != taken) & ~(np.isnan(logged) & np.isnan(taken))).sum())
        columns[name] = Numbers(values, known)
    return StepLines(rows.steps[first], rows.origin.at(first), columns), replaced


def table_of(run: TextRun) -> LineTable:
    """Return the lines of a run as columns, with a session for each start."""
    filled = (name for part in run.parts for name, column in part.rows.columns.items() if column.recorded.any())
    names = [name for name in dict.fromkeys(filled) if not name.startswith(HELPER)]
    empty = [unrecorded_column(len(part.rows.steps)) for part in run.parts]
    columns = [[part.rows.columns.get(name, gap) for part, gap in zip(run.parts, empty, strict=True)] for name in names]
    shape = len(names), sum(len(part.rows.steps) for part in run.parts)
    values, known = np.empty(shape), np.empty(shape, bool)
    for place, parts in enumerate(columns):
        np.concatenate([part.values for part in parts], out=values[place])
        np.concatenate([part.recorded for part in parts], out=known[place])
    steps, sessions = run.parts[0].rows.steps, np.zeros(shape[1], np.int64)  # zero pages take memory once written
    if len(run.parts) > 1:
        steps = np.concatenate([part.rows.steps for part in run.parts])
        sessions = np.repeat(np.arange(len(run.parts)), [len(part.rows.steps) for part in run.parts])
    logged = known.any(axis=0)
    if not logged.all():
        steps, sessions, values, known = steps[logged], sessions[logged], values[:, logged], known[:, logged]
    return LineTable(steps, sessions, tuple(names), values, None if known.all() else known, {})


def _one_rank(rows: StepLines) -> tuple[StepLines, list[str]]:
    """Keep the lines of one rank where several ranks log the same steps, and return a note on it."""
    ranks = rows.origin.ranks
    known, counts = np.unique(ranks[ranks != NO_RANK], return_counts=True)
    if len(known) < 2:
        return rows, []
    chosen = int(known[counts.argmax()])
    of_chosen, of_others = rows.steps[ranks == chosen], rows.steps[(ranks != chosen) & (ranks >= 0)]
    if np.isin(of_others, of_chosen).mean() <= 0.5:
        return rows, []  # another rank logs after a restart
    keep = (ranks == chosen) | (ranks < 0)
    return rows.kept(keep), [
        f"{len(known):,} ranks log the same steps: the {int(keep.sum()):,} lines of rank {chosen} were taken"
    ]


def _logged(rows: StepLines, starts: Sequence[int]) -> set[int]:
    """Return the rows right after the lines on which the program reports a start."""
    return {int(at) for at in np.searchsorted(rows.origin.lines, np.array(starts, np.int64)) if 0 < at < len(rows.steps)}


def _cuts(rows: StepLines, starts: Sequence[int]) -> list[int]:
    """Return the rows at which a start begins: where the log reports one, or where steps go back and repeat a column."""
    logged = _logged(rows, starts)
    back = (np.flatnonzero(np.diff(rows.steps) <= 0) + 1).tolist()
    reached = {name: _reached(rows.steps, column) for name, column in rows.columns.items()} if back else {}
    again = {
        at
        for at in back
        if any(rows.columns[name].recorded[at] and past[at - 1] >= rows.steps[at] for name, past in reached.items())
    }
    return sorted(logged | again)


def _counted_through(
    rows: StepLines, cuts: Sequence[int], starts: Sequence[int], resumes: Mapping[int, int]
) -> tuple[StepLines, list[int], list[str]]:
    """Return lines whose steps go on where the training does, the cuts that are left, and a note."""
    loss = rows.columns.get("train_loss_raw") or rows.columns.get("val_loss")
    reported = _logged(rows, [*starts, *resumes])
    anew = [
        at
        for at, end in pairwise([*cuts, len(rows.steps)])
        if at not in reported and rows.steps[at] <= rows.steps[at - 1] and _is_beginning(rows.steps[at:end])
    ]
    if loss is None or not anew or not _is_beginning(rows.steps):
        return rows, [*cuts], []
    steps, gone_on = counted_through(rows.steps, loss, anew)
    left = sorted({*cuts} - {*gone_on})
    return StepLines(steps, rows.origin, rows.columns), left, note_on_counts(len(gone_on))


def _reached(steps: Ints, column: Numbers) -> Ints:
    """Return for each row the last step up to it at which the column holds a value, -1 before the first: shape (N,)."""
    at = np.maximum.accumulate(np.where(column.recorded, np.arange(len(steps)), -1))
    return np.where(at >= 0, steps[at], -1)


def _is_beginning(steps: Ints) -> bool:
    """Tell whether the first step is no further from 0 than the smallest step interval."""
    apart = np.diff(steps)
    return bool(steps[0] <= max(1, apart[apart > 0].min(initial=int(steps[0])) if len(steps) > 1 else 1))


def _without_false_starts(runs: list[TextRun]) -> list[TextRun]:
    """Remove starts that ended after a few lines, if the next one continued longer."""
    real = [
        run
        for run, later in pairwise(runs)
        if not (len(run.parts) == 1 and len(run.parts[0].rows.steps) <= FEW_ROWS < len(later.parts[0].rows.steps))
    ]
    left_out = len(runs) - 1 - len(real)
    runs = [*real, runs[-1]]
    if left_out:
        what = counted(left_out, "start that ended", "starts that ended")
        runs[-1].notes.append(f"left out: {what} within {FEW_ROWS} lines, before the training began again")
    return runs


def _same(one: TextRun, other: TextRun) -> bool:
    if len(one.parts) != len(other.parts):
        return False
    first, second = table_of(one), table_of(other)
    return (
        first.names == second.names
        and np.array_equal(first.steps, second.steps)
        and np.array_equal(first.values, second.values, equal_nan=True)
    )


def _in_order(part: LogPart, notes: list[str]) -> LogPart:
    """Return a part with its lines in step order, and add a note on the number of lines that were moved."""
    rows = part.rows
    if (rows.steps[1:] >= rows.steps[:-1]).all():
        return part
    order = np.argsort(rows.steps, kind="stable")
    below = counted(int((np.diff(rows.steps) < 0).sum()), "line stands below its place", "lines stand below their place")
    notes.append(f"{below} in the order of steps: sorted in")
    return replace(part, rows=merge_lines(rows.at(order))[0])


def _notes_on_parts(run: TextRun) -> list[str]:
    """Return notes on where the run was restarted, and how many steps were repeated."""
    notes = []
    for before, part in pairwise(run.parts):
        end, begin = int(before.rows.steps[-1]), int(part.rows.steps[0])
        where = f"started again in line {int(part.rows.origin.lines[0]):,}, from step {end:,} to {begin:,}"
        if begin > end:
            notes.append(f"{where}: it goes on")
        else:
            twice = np.isin(part.rows.steps, before.rows.steps)
            notes.append(f"{where}: {int(twice.sum()):,} steps stand there again, and the later ones hold")
    if len(notes) > 5:
        notes = [*notes[:4], f"started again {len(notes) - 4:,} more times"]
    return notes
