"""Scalars as they were logged: each session by itself, so that what a later one replaced is not lost."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Finding
from ckaudit.run.run import FILE_FACTS, Run
from ckaudit.run.scalars import Column, Joiner, ScalarLog, SessionLogs
from ckaudit.run.series import Floats, Mask, Steps

FILLED = ("loss", "scalars.*")
"""What checkpoints hold of scalars."""


class Logged(Struct, frozen=True, eq=False):
    """The scalars of one run.

    Attributes:
        name: What the user called the run.
        sessions: Values by name, for each start of the run, in their order.
        manifest: `run.json`, or what an importer knew; None: nothing.
        findings: What is wrong with its files.
        notes: What a reader must know of how it was read.
        checkpoints: How many checkpoints the run has, of which only the scalars are here.
    """

    name: str
    sessions: dict[int, ScalarLog]
    manifest: Manifest | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoints: int = 0

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of numbers, in the order in which they came; the time first."""
        found = dict.fromkeys(name for log in self.sessions.values() for name in log.numbers)
        return tuple(sorted(found, key=lambda name: name != "time"))

    @property
    def words(self) -> tuple[str, ...]:
        """Names of what was logged as words, in the order in which they came."""
        return tuple(dict.fromkeys(name for log in self.sessions.values() for name in log.words))

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return sum(len(_steps_of(log)) for log in self.sessions.values())

    def __bool__(self) -> bool:
        """Tell whether anything was logged."""
        return any(self.sessions.values())

    def tables(self, *, only: int | None = None, max_lines: int = 100_000) -> Iterator[LineTable]:
        """Yield all lines in the order of sessions, then of steps.

        Args:
            only: The session that is wanted; None: all.
            max_lines: How many lines a table has at most; each has every name of the run.
        """
        numbers, words = self.numbers, self.words
        for session, log in self.sessions.items() if only is None else [(only, self.sessions[only])]:
            columns = [_by_step(log.numbers.get(name)) for name in numbers]
            steps = _steps_of(log)
            texts = {name: log.words.get(name, {}) for name in words}
            for start in range(0, len(steps), max_lines):
                yield _table(session, steps[start : start + max_lines], numbers, columns, texts)

    def counted(self) -> "Logged":
        """Return the run without what a later session replaced, as one session."""
        logs = SessionLogs()
        for table in self.tables():
            logs.add_table(table)
        return replace(self, sessions={0: logs.merged()[0]})


def logged(run: Run, logs: SessionLogs) -> Logged:
    """Return the scalars of a run whose lines were gathered in `logs`; checkpoints fill what no line says of a step."""
    sessions, joiner = logs.sessions, Joiner()
    merged, _ = logs.merged()
    for family, series in run.scalars.items():
        for column, label in enumerate(series.labels) if family not in FILE_FACTS else ():
            name = family if label == family else f"{family}/{label}"
            told = joiner.join(merged.numbers[name]).steps if name in merged.numbers else np.empty(0, np.int64)
            for row in np.flatnonzero(series.recorded[:, column] & ~np.isin(series.steps, told)).tolist():
                step = int(series.steps[row])
                sessions.setdefault(logs.session_of(step), ScalarLog()).add(step, {name: float(series.values[row, column])})
    return Logged(run.name, sessions, run.manifest, run.findings, run.notes, len(run.checkpoint_steps))


def _steps_of(log: ScalarLog) -> Steps:
    """Return every step that a session has a value of."""
    parts = [steps for column in log.numbers.values() for steps, _ in column.joined()]
    said = [np.fromiter(words, np.int64, len(words)) for words in log.words.values()]
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts, *said]))


def _by_step(column: Column | None) -> tuple[Steps, Floats]:
    """Return a column with each step once, rising; of two values of one step the later one counts."""
    if column is None:
        return np.empty(0, np.int64), np.empty(0)
    joined = Joiner().join(column)
    if joined.rises:
        return joined.steps, joined.values
    backwards = joined.steps[::-1]
    steps, first = np.unique(backwards, return_index=True)
    return steps, joined.values[::-1][first]


def _table(
    session: int, steps: Steps, numbers: tuple[str, ...], columns: list[tuple[Steps, Floats]], words: dict[str, dict[int, str]]
) -> LineTable:
    values = np.full((len(numbers), len(steps)), np.nan)
    recorded: Mask = np.zeros(values.shape, bool)
    for index, (own, found) in enumerate(columns):
        place = np.searchsorted(own, steps)
        known = place < len(own)
        known[known] = own[place[known]] == steps[known]
        values[index, known] = found[place[known]]
        recorded[index] = known
    texts = {name: [said.get(step) for step in steps.tolist()] for name, said in words.items()}
    return LineTable(steps, np.full(len(steps), session, np.int64), numbers, values, recorded, texts)
