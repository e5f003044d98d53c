"""Lines of `scalars.jsonl` merged to series: later sessions replace earlier ones, and checkpoints fill gaps in the log.

`LoggedScalars` keeps the scalars as they were logged, each session separately, including those that a later session replaced.
"""

from array import array
from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.io.fast_jsonl import WORDS, LineTable
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.scalars import word_of
from ckaudit.run.line_budget import MAX_MASKS, labels_that_fit
from ckaudit.run.run import FILE_FACTS, Labels, Run
from ckaudit.run.series import Floats, Mask, Series, Steps, merged_steps, single

Part = tuple[Steps, Floats]

_IDENTITY = frozenset({"step", "session", "schema_version"})

FILLED = ("loss", "scalars.*")
"""Checkpoint fields that hold scalars."""


class ScalarColumn(Struct):
    """Values of one name, in logging order.

    Attributes:
        parts: Blocks of steps and values, both shape (N,), that come before `steps`.
        steps: Steps added singly since the last block.
        values: Their values.
    """

    parts: list[Part] = field(default_factory=list)
    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def extend(self, steps: Steps, values: Floats) -> None:
        """Append a block of values."""
        self._close()
        if len(steps):
            self.parts.append((steps, values))

    def joined(self) -> list[Part]:
        """Return everything as parts."""
        self._close()
        return self.parts

    def _close(self) -> None:
        if self.steps:
            self.parts.append((np.array(self.steps, np.int64), np.array(self.values, np.float64)))
            self.steps, self.values = array("q"), array("d")

    def split(self, step: int) -> tuple["ScalarColumn", "ScalarColumn"]:
        """Return the part before `step`, and the rest."""
        before, rest = ScalarColumn(), ScalarColumn()
        for steps, values in self.joined():
            early = steps < step
            if early.all():
                before.extend(steps, values)
            elif not early.any():
                rest.extend(steps, values)
            else:
                before.extend(steps[early], values[early])
                rest.extend(steps[~early], values[~early])
        return before, rest


class JoinedColumn(Struct, frozen=True, eq=False):
    """A whole column: steps and values, both shape (N,), and whether the steps strictly rise."""

    steps: Steps
    values: Floats
    rises: bool


class ColumnJoiner:
    """Joins the parts of many columns; columns with the same steps share one array of steps."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int, int], list[Steps]] = {}
        self._known: dict[tuple[int, ...], tuple[Steps, bool]] = {}

    def join(self, column: ScalarColumn) -> JoinedColumn:
        """Return all steps and values of a column."""
        steps_of_parts = [self._shared(steps) for steps, _ in column.joined()] or [np.empty(0, np.int64)]
        key = tuple(map(id, steps_of_parts)) if column.parts else ()
        if key not in self._known:
            joined = np.concatenate(steps_of_parts)
            self._known[key] = joined, bool((joined[1:] > joined[:-1]).all())
        steps, rises = self._known[key]
        return JoinedColumn(steps, np.concatenate([values for _, values in column.parts] or [np.empty(0)]), rises)

    def _shared(self, steps: Steps) -> Steps:
        """Return the first array with these steps; it is kept, so that its id stays unique."""
        alike = self._parts.setdefault((len(steps), int(steps[0]), int(steps[-1])), [])
        first = next((other for other in alike if other is steps or np.array_equal(other, steps)), None)
        if first is None:
            alike.append(steps)
        return steps if first is None else first


class ScalarColumns(Struct):
    """Values by catalogue name, gathered line by line; the notes list names with too many labels for a table."""

    numbers: dict[str, ScalarColumn] = field(default_factory=dict)
    words: dict[str, dict[int, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Add the values of one step; null counts as not recorded, the contract's words for numbers become numbers."""
        for name, value in values.items():
            if name in _IDENTITY or value is None:
                continue
            word = word_of(name, value) if value.__class__ is bool else value
            if isinstance(word, str) and word not in WORDS:
                self.words.setdefault(name, {})[step] = word
                continue
            column = self.numbers.get(name)
            if column is None:
                column = self.numbers[name] = ScalarColumn()
            column.steps.append(step)
            column.values.append(float(value))

    def add_table(self, table: LineTable, rows: Mask | None) -> None:
        """Add the lines of a table, or only the lines in the mask `rows`, shape (N,)."""
        steps = table.steps if rows is None else table.steps[rows]
        for index, name in enumerate(table.names):
            known = _both_masks(rows, None if table.recorded is None else table.recorded[index])
            if known is None or known.any():
                column = self.numbers.setdefault(name, ScalarColumn())
                values = table.values[index] if known is None else table.values[index][known]
                column.extend(steps if known is rows else table.steps[known], values)
        for name, words in table.texts.items():
            texts = words if rows is None else list(compress(words, rows))
            if recorded_words := {step: word for step, word in zip(steps.tolist(), texts, strict=True) if word is not None}:
                self.words.setdefault(name, {}).update(recorded_words)

    def knows(self, table: LineTable, rows: Mask | None) -> bool:
        """Tell whether every name with a value in a table was logged before."""
        for index, name in enumerate(table.names):
            if name not in self.numbers:
                known = _both_masks(rows, None if table.recorded is None else table.recorded[index])
                if known is None or known.any():
                    return False
        return all(name in self.words or all(word is None for word in words) for name, words in table.texts.items())

    def __bool__(self) -> bool:
        """Tell whether anything was logged."""
        return bool(self.numbers or self.words)

    def split(self, step: int) -> tuple["ScalarColumns", "ScalarColumns"]:
        """Return the part before `step`, and the rest."""
        before, rest = ScalarColumns(), ScalarColumns()
        for name, column in self.numbers.items():
            for log, part in zip((before, rest), column.split(step), strict=True):
                if part.parts:
                    log.numbers[name] = part
        for name, words in self.words.items():
            for step_of_word, word in words.items():
                (before if step_of_word < step else rest).words.setdefault(name, {})[step_of_word] = word
        return before, rest

    def extend(self, later: "ScalarColumns") -> None:
        """Append the values of another log."""
        for name, column in later.numbers.items():
            own = self.numbers.setdefault(name, ScalarColumn())
            for part in column.joined():
                own.extend(*part)
        for name, words in later.words.items():
            self.words.setdefault(name, {}).update(words)

    def series(self, fill: "ScalarColumns | None" = None) -> dict[str, Series]:
        """Return one series per name; "slice_val_loss/regular" becomes the column "regular" of slice_val_loss.

        Args:
            fill: Scalars of the checkpoints, used for names and steps that the log lacks.
        """
        joiner = ColumnJoiner()
        columns = dict(self.numbers)
        for name, column in (fill.numbers if fill else {}).items():
            columns[name] = _with_missing_steps(columns[name], column, joiner) if name in columns else column
        families: dict[str, dict[str, ScalarColumn]] = {}
        for name, column in columns.items():
            family, _, label = name.partition("/")
            families.setdefault(family, {})[label or family] = column
        return {family: _joined(family, members, joiner, self.notes) for family, members in families.items()}

    def texts(self) -> dict[str, Labels]:
        """Return the words by name."""
        return {
            name: Labels(name, tuple(sorted(words)), tuple(words[s] for s in sorted(words))) for name, words in self.words.items()
        }


def _both_masks(one: Mask | None, other: Mask | None) -> Mask | None:
    """Return the conjunction of two masks; None stands for a mask that is true everywhere."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _with_missing_steps(log: ScalarColumn, fill: ScalarColumn, joiner: ColumnJoiner) -> ScalarColumn:
    more = joiner.join(fill)
    missing = ~np.isin(more.steps, joiner.join(log).steps)
    filled = ScalarColumn(list(log.parts))
    filled.extend(more.steps[missing], more.values[missing])
    return filled


def _joined(name: str, columns: Mapping[str, ScalarColumn], joiner: ColumnJoiner, notes: list[str]) -> Series:
    parts = [joiner.join(column) for column in columns.values()]
    if len(parts) == 1 and parts[0].rises:
        return replace(single(name, "1", parts[0].steps, parts[0].values), labels=tuple(columns))
    steps = merged_steps(*(part.steps for part in parts))
    count = labels_that_fit(name, len(parts), len(steps), sum(len(part.steps) for part in parts), notes)
    values = np.full((len(steps), count), np.nan)
    recorded = np.zeros(values.shape, bool)
    for index, part in enumerate(parts[:count]):
        rows = np.searchsorted(steps, part.steps)
        values[rows, index] = part.values
        recorded[rows, index] = True
    return Series(name, "1", steps, tuple(columns)[:count], values, recorded)


class SessionLogs:
    """Lines of all sessions of one run. A later session replaces an earlier one from its first step on, kept in `starts`."""

    def __init__(self) -> None:
        self._logs: dict[int, ScalarColumns] = {}
        self.starts: dict[int, int] = {}

    @property
    def sessions(self) -> dict[int, ScalarColumns]:
        """The log of each session in order, including what a later one replaced."""
        return dict(sorted(self._logs.items()))

    def session_of(self, step: int) -> int:
        """Return the valid session at a step; the first session for earlier steps, 0 if there is no session."""
        begun = [session for session, start in self.starts.items() if start <= step]
        return max(begun, default=min(self.starts, default=0))

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one line."""
        session, step = int(row.get("session") or 0), int(row["step"])
        if session not in self._logs:
            self._logs[session] = ScalarColumns()
        self.starts[session] = min(self.starts.get(session, step), step)
        self._logs[session].add(step, row)

    def takes(self, table: LineTable) -> bool:
        """Tell whether a table has few sessions and no new name: reading by columns would lose the order of new names."""
        few = len(np.unique(table.sessions)) <= MAX_MASKS
        return few and all(log is not None and log.knows(table, rows) for log, rows in self._by_session(table))

    def add_table(self, table: LineTable) -> None:
        """Add the lines of a table. Check the table of a growing log with `takes` first; that of a whole run may be new."""
        for session, (log, rows) in zip(np.unique(table.sessions).tolist(), self._by_session(table), strict=True):
            first = int((table.steps if rows is None else table.steps[rows]).min())
            self.starts[session] = min(self.starts.get(session, first), first)
            (log or self._logs.setdefault(session, ScalarColumns())).add_table(table, rows)

    def _by_session(self, table: LineTable) -> list[tuple[ScalarColumns | None, Mask | None]]:
        """Return the log and the row mask of each session in a table; a mask of None selects all rows."""
        if (table.sessions == table.sessions[0]).all():
            return [(self._logs.get(int(table.sessions[0])), None)]
        return [(self._logs.get(session), table.sessions == session) for session in np.unique(table.sessions).tolist()]

    def merged(self) -> tuple[ScalarColumns, dict[int, ScalarColumns]]:
        """Return the valid log, and the invalid part of each replaced session, in the order of sessions."""
        merged, branches = ScalarColumns(), {}
        ends, end = dict[int, int | None](), None
        for session in sorted(self._logs, reverse=True):
            ends[session], end = end, min(self.starts[session], self.starts[session] if end is None else end)
        for session in sorted(self._logs):
            end = ends[session]
            valid, replaced = (self._logs[session], ScalarColumns()) if end is None else self._logs[session].split(end)
            merged.extend(valid)
            if replaced:
                branches[session] = replaced
        return merged, branches


class LoggedScalars(Struct, frozen=True, eq=False):
    """The scalars of one run.

    Attributes:
        name: Name that the user gave the run.
        sessions: Values by name, for each session in order.
        manifest: Contents of `run.json`, or facts from an importer; None if there are none.
        findings: Problems of its files.
        notes: Notes on how the run was read.
        checkpoints: Number of checkpoints of the run, of which only the scalars are kept.
    """

    name: str
    sessions: dict[int, ScalarColumns]
    manifest: Manifest | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoints: int = 0

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of numeric columns in order of appearance, the time first."""
        names = dict.fromkeys(name for log in self.sessions.values() for name in log.numbers)
        return tuple(sorted(names, key=lambda name: name != "time"))

    @property
    def words(self) -> tuple[str, ...]:
        """Names of columns of words in order of appearance."""
        return tuple(dict.fromkeys(name for log in self.sessions.values() for name in log.words))

    @property
    def lines(self) -> int:
        """Number of lines."""
        return sum(len(_steps_of(log)) for log in self.sessions.values())

    def __bool__(self) -> bool:
        """Tell whether anything was logged."""
        return any(self.sessions.values())

    def tables(self, *, only: int | None = None, max_lines: int = 100_000) -> Iterator[LineTable]:
        """Yield all lines by session and step.

        Args:
            only: The wanted session; None: all.
            max_lines: Largest number of lines per table; each table has every name of the run.
        """
        numbers, words = self.numbers, self.words
        for session, log in self.sessions.items() if only is None else [(only, self.sessions[only])]:
            columns = [_by_step(log.numbers.get(name)) for name in numbers]
            steps = _steps_of(log)
            texts = {name: log.words.get(name, {}) for name in words}
            for start in range(0, len(steps), max_lines):
                yield _table(session, steps[start : start + max_lines], numbers, columns, texts)

    def counted(self) -> "LoggedScalars":
        """Return the run without the lines that a later session replaced."""
        kept: dict[int, ScalarColumns] = {}
        end: int | None = None
        for session, log in sorted(self.sessions.items(), reverse=True):
            own = log if end is None else log.split(end)[0]
            if own:
                kept[session] = own
            end = min((int(step) for step in (*_steps_of(log)[:1], *(() if end is None else (end,)))), default=None)
        return replace(self, sessions=dict(sorted(kept.items())))


def logged_scalars(run: Run, logs: SessionLogs) -> LoggedScalars:
    """Return the scalars of a run whose lines are in `logs`; checkpoints fill steps that no line holds."""
    sessions, joiner = logs.sessions, ColumnJoiner()
    merged, _ = logs.merged()
    for family, series in run.scalars.items():
        for column, label in enumerate(series.labels) if family not in FILE_FACTS else ():
            name = family if label == family else f"{family}/{label}"
            logged_steps = joiner.join(merged.numbers[name]).steps if name in merged.numbers else np.empty(0, np.int64)
            for row in np.flatnonzero(series.recorded[:, column] & ~np.isin(series.steps, logged_steps)).tolist():
                step = int(series.steps[row])
                sessions.setdefault(logs.session_of(step), ScalarColumns()).add(step, {name: float(series.values[row, column])})
    return LoggedScalars(run.name, sessions, run.manifest, run.findings, run.notes, len(run.checkpoint_steps))


def _steps_of(log: ScalarColumns) -> Steps:
    """Return every step at which a session has a value."""
    parts = [steps for column in log.numbers.values() for steps, _ in column.joined()]
    word_steps = [np.fromiter(words, np.int64, len(words)) for words in log.words.values()]
    return merged_steps(*parts, *word_steps)


def _by_step(column: ScalarColumn | None) -> tuple[Steps, Floats]:
    """Return a column with unique, rising steps; of two values at one step the later one counts."""
    if column is None:
        return np.empty(0, np.int64), np.empty(0)
    joined = ColumnJoiner().join(column)
    if joined.rises:
        return joined.steps, joined.values
    steps, first = np.unique(joined.steps[::-1], return_index=True)
    return steps, joined.values[::-1][first]


def _table(
    session: int, steps: Steps, numbers: tuple[str, ...], columns: list[tuple[Steps, Floats]], words: dict[str, dict[int, str]]
) -> LineTable:
    values = np.full((len(numbers), len(steps)), np.nan)
    recorded: Mask = np.zeros(values.shape, bool)
    for index, (own_steps, own_values) in enumerate(columns):
        place = np.searchsorted(own_steps, steps)
        known = place < len(own_steps)
        known[known] = own_steps[place[known]] == steps[known]
        values[index, known] = own_values[place[known]]
        recorded[index] = known
    texts = {name: [by_step.get(step) for step in steps.tolist()] for name, by_step in words.items()}
    return LineTable(steps, np.full(len(steps), session, np.int64), numbers, values, recorded, texts)
