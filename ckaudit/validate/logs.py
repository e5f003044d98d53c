"""The scalar logs of one run, read in one pass each: violations of their lines, and facts for the checks of the run."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import le, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ckaudit.contract.io.fast_jsonl import WORDS
from ckaudit.contract.io.jsonl import MAX_FAULTY, Lines, LogBudget, Row, read_lines
from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.scalars import is_number, word_of
from ckaudit.contract.violations import ViolationKind
from ckaudit.run.line_budget import LineBudget
from ckaudit.validate.catalogue import CLOCK_BACK, CONFLICT, SESSION_BACK, STEPS_BACK, WORD_FOR_NUMBER
from ckaudit.validate.file_facts import LogFacts, RunFacts
from ckaudit.validate.line_tables import (
    NO_VALUE,
    LastLine,
    is_orderly,
    is_within,
    last_line,
    recorded_names,
    tabulator_for,
    values_at,
)

if TYPE_CHECKING:
    from ckaudit.contract.io.fast_jsonl import LineTable, Tabulator

Ranges = dict[int, list[tuple[int, int]]]

MAX_COMPARED = 1_000_000
"""Lines of repeated steps that are compared with each other; they take ten seconds."""

COMPARED = ("train_loss_raw", "grad_global_norm")


class CappedFindings(Struct):
    """Findings of one file: the first `limit` of each kind, then one with the number of the others.

    Attributes:
        file: Name of the file in findings.
        limit: Number of findings of one kind to keep; nobody reads more.
    """

    file: str
    limit: int = 20
    _kept: list[Finding] = field(default_factory=list)
    _counts: Counter[ViolationKind] = field(default_factory=Counter)

    def add(self, kind: ViolationKind, message: str, **place: Any) -> None:
        """Add one finding."""
        self._counts[kind] += 1
        if self._counts[kind] <= self.limit:
            self._kept.append(kind.at(self.file, message, **place))

    @property
    def are_too_many(self) -> bool:
        """Whether reading on would only find more of the same."""
        return sum(self._counts.values()) >= MAX_FAULTY

    def close(self) -> list[Finding]:
        """Return the kept findings, and one for the others of each kind."""
        rest = "; the rest of the file was not read" if self.are_too_many else ""
        more = [
            kind.at(self.file, f"{count - self.limit:,} more places, as those above{rest}")
            for kind, count in self._counts.items()
            if count > self.limit
        ]
        return self._kept + more


class SessionStretch(Struct):
    """The steps that one session wrote into one file.

    Attributes:
        first: Lowest step.
        last: Highest step.
        names: Every name that has a value.
        back: The lowest step that the session went back to; None if it never did.
    """

    first: int
    last: int
    names: set[str] = field(default_factory=set)
    back: int | None = None


class LogPass(Struct):
    """One pass over a scalar log, line by line: steps, clock and sessions must not go back, nor values contradict each other.

    Attributes:
        findings: Collects the problems of the file.
        wanted: Steps whose values to keep: those of the checkpoints.
        budget: Bounds the names and sessions of all logs of the run.
        tabulator: Reads blocks as tables; None for a log that is not worth it.
        tolerance: Seconds by which a corrected clock may go back; NTP slews smaller errors instead of jumping.
    """

    findings: CappedFindings
    wanted: frozenset[int]
    budget: LineBudget
    tabulator: "Tabulator | None" = None
    tolerance: float = 1.0
    stretches: dict[int, SessionStretch] = field(default_factory=dict)
    lines: int = 0
    _values: dict[tuple[int, int, str], tuple[Number, int]] = field(default_factory=dict)
    _last: LastLine = field(default_factory=LastLine)

    def table(self, body: bytes) -> "LineTable | None":
        """Return lines as a table if nothing is wrong with them."""
        table = self.tabulator.read(body) if self.tabulator else None
        if table is None or any(map(is_number, table.texts)) or not is_orderly(table, self._last):
            return None
        return table

    def take(self, lines: Lines) -> None:
        """Check one block of lines."""
        if lines.table is not None:
            self._take_table(lines.table, lines.first)
        if not lines.rows:
            return
        if self.tabulator:
            self.tabulator.learn(lines.rows)
        rows, numbers = self._fitting(lines)
        self.lines += len(rows)
        self._find_words(rows, numbers)
        steps = [row["step"] for row in rows]
        sessions = set(map(_session_of, rows))
        if not self._in_order(rows, steps, sessions):
            for row, number in zip(rows, numbers, strict=True):
                self._take_row(row, number)
        for index in [index for index, step in enumerate(steps) if step in self.wanted]:
            for name in COMPARED:
                value = rows[index].get(name)
                if value.__class__ in (int, float) or value in ("NaN", "Infinity", "-Infinity"):
                    self._values[steps[index], _session_of(rows[index]), name] = value, numbers[index]  # type: ignore[assignment,index]

    def _take_table(self, table: "LineTable", first_line: int) -> None:
        """Take lines that `table` has found orderly."""
        last = last_line(table, self._last)
        self.lines += len(table.steps)
        stretch = self.stretches.setdefault(last.session, SessionStretch(int(table.steps[0]), last.step))
        stretch.last = max(stretch.last, last.step)
        stretch.names |= recorded_names(table)
        for row, step, name, value in values_at(table, self.wanted, COMPARED):
            self._values[step, last.session, name] = value, first_line + row
        self._last = last

    def _fitting(self, lines: Lines) -> tuple[list[Row], list[int]]:
        """Return the parts of lines that fit into the budget of names and sessions, and their line numbers."""
        fitting = [(row, number) for row, number in zip(map(self.budget.fitting, lines.rows), lines.numbers, strict=True) if row]
        return [row for row, _ in fitting], [number for _, number in fitting]

    def _find_words(self, rows: list[Row], numbers: list[int]) -> None:
        """Report words and booleans in place of numbers."""
        for row, number in zip(rows, numbers, strict=True):
            for name, value in row.items():
                if value.__class__ is str and value not in WORDS and is_number(name):
                    said = f"is the word {str(value)[:40]!r}"
                elif value.__class__ is bool and is_number(name) and (word := word_of(name, bool(value))) is not None:
                    said = f"is {word}, not a number"
                else:
                    continue
                message = f"{name} in line {number} {said}"
                self.findings.add(WORD_FOR_NUMBER, message, where=name, line=number, first_step=int(row["step"] or 0))

    def close(self) -> tuple[LogFacts, list[Finding]]:
        """Return the facts of the file, and the problems of its order."""
        timed = self._last.time != float("-inf")
        names = frozenset().union(*(stretch.names for stretch in self.stretches.values())) - NO_VALUE
        facts = LogFacts(self.findings.file, self.lines, frozenset(self.stretches), timed, self._values, names)
        return facts, self.findings.close()

    def _in_order(self, rows: list[Row], steps: list[Any], sessions: set[int]) -> bool:
        """Check a block in one sweep if everything in it rises, and tell whether it does."""
        if len(sessions) > 1 or (self._last.session not in sessions and self._last.session >= 0):
            return False
        times = [time for row in rows if isinstance(time := row.get("time"), (int, float))]
        if steps[0] <= self._last.step or not all(map(lt, steps, steps[1:])):
            return False
        if times and (times[0] < self._last.time or not all(map(le, times, times[1:]))):
            return False
        last = self._last = LastLine(sessions.pop(), steps[-1], times[-1] if times else self._last.time, rows[-1])
        stretch = self.stretches.setdefault(last.session, SessionStretch(steps[0], steps[-1]))
        stretch.last = max(stretch.last, steps[-1])
        stretch.names.update(*rows)
        return True

    def _take_row(self, row: Row, number: int) -> None:
        step, session = int(row["step"] or 0), _session_of(row)
        if session < self._last.session:
            message = f"line {number} is of session {session}, after a line of session {self._last.session}"
            self.findings.add(SESSION_BACK, message, line=number, first_step=step)
        stretch = self.stretches.setdefault(session, SessionStretch(step, step))
        if session != self._last.session:
            self._last.time, self._last.row = float("-inf"), {}
        elif step < self._last.step:
            message = f"step {step} in line {number} follows step {self._last.step} of the same session"
            self.findings.add(STEPS_BACK, message, line=number, first_step=step)
        if step < stretch.last:
            stretch.back = step if stretch.back is None else min(step, stretch.back)
        elif session == self._last.session and step == self._last.step:
            row = self._merge(row, number, step)
        self._take_time(row, number, step)
        stretch.first, stretch.last = min(stretch.first, step), max(stretch.last, step)
        stretch.names.update(row)
        self._last.session, self._last.step, self._last.row = session, step, row

    def _take_time(self, row: Row, number: int, step: int) -> None:
        time = row.get("time")
        if not isinstance(time, (int, float)):
            return
        if time < self._last.time - self.tolerance:
            message = f"the clock goes back by {self._last.time - time:,.3g} s in line {number}"
            self.findings.add(CLOCK_BACK, message, line=number, first_step=step)
        self._last.time = time

    def _merge(self, row: Row, number: int, step: int) -> Row:
        for name in contradicted(self._last.row, row):
            message = f"{name} of step {step} is {row[name]} in line {number}, {self._last.row[name]} before"
            values = {"expected": str(self._last.row[name]), "found": str(row[name])}
            self.findings.add(CONFLICT, message, where=name, line=number, first_step=step, **values)
        return self._last.row | {name: value for name, value in row.items() if value is not None}


# A second pass, only for steps that may hold a name twice.
def conflicts(logs: Iterable[tuple[Path, str]], ranges: Ranges, *, root: Path | None, limit: int = 200_000) -> list[Finding]:
    """Return the values that contradict an earlier line of the same step and session.

    Args:
        logs: Files and their names in findings, in reading order.
        ranges: Steps to compare, by session.
        root: Folder that files must not leave through a link.
        limit: Number of steps kept at once; a session that goes back further is compared up to there. 200,000 lines take 120 MB.
    """
    seen: dict[tuple[int, int], tuple[Row, str]] = {}
    findings: list[Finding] = []
    budget, compared = LogBudget(), 0
    for path, shown in logs:
        bounded = CappedFindings(shown)
        for row, number in _rows_within(path, shown, ranges, root, budget):
            key = (int(row["step"] or 0), int(row.get("session") or 0))
            older, where = seen.get(key, ({}, shown))
            for name in contradicted(older, row):
                message = f"{name} of step {row['step']} is {row[name]} in line {number}, {older[name]} in {where} before"
                place = {"where": name, "line": number, "first_step": row["step"]}
                bounded.add(CONFLICT, message, expected=str(older[name]), found=str(row[name]), **place)
            if key in seen or len(seen) < limit:
                seen[key] = older | row, shown
            compared += 1
            if bounded.are_too_many or compared == MAX_COMPARED:
                break
        findings += bounded.close()
        if compared == MAX_COMPARED:
            break
    return findings


def _rows_within(path: Path, shown: str, ranges: Ranges, root: Path | None, budget: LogBudget) -> Iterator[tuple[Row, int]]:
    tabulator = tabulator_for(path)

    def without(body: bytes) -> "LineTable | None":
        """Return lines as a table, which is passed over, if none of them is in the ranges."""
        table = tabulator.read(body) if tabulator else None
        return None if table is None or is_within(table, ranges) else table

    for lines in read_lines(path, shown, root=root, tabulate=without if tabulator else None, budget=budget):
        if tabulator:
            tabulator.learn(lines.rows)
        for row, number in zip(lines.rows, lines.numbers, strict=True):
            spans = ranges.get(int(row.get("session") or 0))
            if spans and any(first <= int(row["step"] or 0) <= last for first, last in spans):
                yield row, number


class LogsRead(Struct):
    """Contents of a run's logs.

    Attributes:
        facts: Facts of each log.
        findings: Violations of lines and their order.
        conflicts: Different values for one step and session; some are already among `findings`.
        notes: Notes that are not problems.
    """

    facts: list[LogFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    conflicts: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_logs(files: Sequence[tuple[Path, str]], run: RunFacts, tick: Callable[[], None]) -> LogsRead:
    """Read every scalar log of a run.

    Args:
        files: The logs, each with its name in findings.
        run: The run, with its checkpoints read.
        tick: Called after each log.
    """
    root, read, walks = run.folder.root, LogsRead(), []
    wanted = frozenset(checkpoint.step for checkpoint in run.checkpoints)
    budget, names = LogBudget(), LineBudget()
    for path, shown in files:
        walk = LogPass(CappedFindings(shown), wanted, names, tabulator_for(path))
        for lines in read_lines(path, shown, root=root, tabulate=walk.table if walk.tabulator else None, budget=budget):
            walk.take(lines)
            read.findings += lines.findings
            read.notes += lines.notes
            if walk.findings.are_too_many:
                break
        facts, findings = walk.close()
        read.facts.append(facts)
        read.findings += findings + names.findings(shown)
        walks.append(walk)
        tick()
    if ranges := repeated_stretches(walks):
        read.conflicts += conflicts(files, ranges, root=root)
    return read


def contradicted(older: Row, newer: Row) -> Iterator[str]:
    """Yield the names with different values in two lines of one step and session; null is not a value.

    >>> list(contradicted({"step": 1, "loss": 2.0, "lr": None}, {"step": 1, "loss": 2.5, "lr": 1.0}))
    ['loss']
    """
    for name in sorted(older.keys() & newer.keys() - NO_VALUE):
        if older[name] != newer[name] and older[name] is not None and newer[name] is not None:
            yield name


def repeated_stretches(walks: list[LogPass]) -> dict[int, list[tuple[int, int]]]:
    """Return, by session, the step ranges that may hold a name twice: a session went back, or two files share names."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for walk in walks:
        for session, stretch in walk.stretches.items():
            if stretch.back is not None:
                ranges.setdefault(session, []).append((stretch.back, stretch.last))
    for one, other in ((one, other) for index, one in enumerate(walks) for other in walks[:index]):
        for session in one.stretches.keys() & other.stretches.keys():
            a, b = one.stretches[session], other.stretches[session]
            first, last = max(a.first, b.first), min(a.last, b.last)
            if first <= last and a.names & b.names - NO_VALUE:
                ranges.setdefault(session, []).append((first, last))
    return ranges


def _session_of(row: Row) -> int:
    return row.get("session") or 0  # type: ignore[return-value]
