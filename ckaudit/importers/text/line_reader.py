"""One pass over a text log: lines with a step become columns of numbers, other lines become facts of the run and errors."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from ckaudit.importers.tables.growing_column import GrowingColumn
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, counted, fill_missing, steps_from, unrecorded_column
from ckaudit.importers.text.error_lines import MAX_SIGHTINGS, NEEDLES, ErrorLine, error_line, lines_with
from ckaudit.importers.text.line_patterns import (
    NO_RANK,
    Cell,
    Ints,
    LineOrigin,
    LinePattern,
    Mask,
    concatenated,
    learn_pattern,
    unmatchable_pattern,
)
from ckaudit.importers.text.prefix import MAX_LINE, LinePrefix, blocks, parse_prefix, prefix_end

MAX_FORMS = 64
CHUNK_LINES = 2**8  # the data of so many lines fit in the processor's cache
MAX_FACTS = 100_000


class RunFact(Struct, frozen=True):
    """What a line says about the run as a whole.

    Attributes:
        line: Its number.
        key: The kind of fact, such as "world_size".
        value: The text of the value.
        mark: Who wrote the line and when.
    """

    line: int
    key: str
    value: str
    mark: LinePrefix


class Dialect(Struct, frozen=True):
    """The log format of one program.

    Attributes:
        name: The format, as a user would call it.
        hints: Each line with a step holds one of these words.
        cells: Returns the values of a line whose text begins at a position, or None for a line without a step. One of them is
            called "step" or "iter".
        wanted: Tells which keys are taken.
        derived: Tells which other keys follow from these, so that no note on them is needed.
        needles: Each line with a fact holds one of these words.
        facts: Returns the facts in the text of a line.
    """

    name: str
    hints: tuple[str, ...]
    cells: Callable[[str, int], Sequence[Cell] | None]
    wanted: Callable[[str], bool]
    derived: Callable[[str], bool]
    needles: tuple[str, ...]
    facts: Callable[[str], Iterable[tuple[str, str]]]


class StepLines(Struct):
    """N lines with steps in the order of the log.

    Attributes:
        steps: Shape (N,).
        origin: Origin of the lines.
        columns: Values by key, shape (N,) each.
    """

    steps: Ints
    origin: LineOrigin
    columns: dict[str, Numbers]

    def kept(self, mask: Mask) -> "StepLines":
        """Return the rows that `mask`, shape (N,), selects."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    def at(self, places: Ints) -> "StepLines":
        """Return the rows at `places`, in their order."""
        columns = {key: column.at(places) for key, column in self.columns.items()}
        return StepLines(self.steps[places], self.origin.at(places), columns)


def step_lines(entries: Iterable[tuple[int, int, Mapping[str, float]]]) -> StepLines:
    """Return lines with steps from the line number, step and values of each; rank and time are unknown."""
    lines, steps = array("q"), array("q")
    columns: dict[str, GrowingColumn] = {}
    for place, (line, step, values) in enumerate(entries):
        lines.append(line)
        steps.append(step)
        for key, value in values.items():
            columns.setdefault(key, GrowingColumn()).put(place, value)
    for column in columns.values():
        column.fill(len(steps))
    origin = LineOrigin(np.array(lines, np.int64), np.full(len(lines), NO_RANK, np.int64), np.full(len(lines), np.nan))
    return StepLines(np.array(steps, np.int64), origin, {key: column.numbers() for key, column in columns.items()})


class LogContent(Struct):
    """The content of a log.

    Attributes:
        rows: Its lines with steps.
        facts: Facts about the run from other lines, in the order of the log.
        sightings: Lines that report errors, in the order of the log.
        lines: The number of lines.
        notes: What could not be read.
        unwanted: Keys that were not taken.
    """

    rows: StepLines
    facts: list[RunFact]
    sightings: list[ErrorLine]
    lines: int
    notes: list[str]
    unwanted: list[str]


def scan(data: bytes, dialect: Dialect) -> LogContent:
    """Read a log in one pass."""
    scanner = _Scanner(dialect)
    lines = scanner.take_all(data)
    del data  # not needed while the lines are joined
    rows = scanner.rows()
    notes = [*scanner.notes, *scanner.notes_on_broken()]
    return LogContent(rows, scanner.facts, scanner.sightings, lines, notes, scanner.unwanted)


def _joined(forms: Sequence[LinePattern]) -> dict[str, Numbers]:
    """Return the columns of all forms concatenated; each part is freed as soon as it is joined."""
    if len(forms) == 1:
        return {key: column.numbers() for key, column in forms[0].columns.items()}
    size, begin = sum(len(form.origins) for form in forms), 0
    columns: dict[str, Numbers] = {}
    for form in forms:
        rows = slice(begin, begin + len(form.origins))
        for key in list(form.columns):
            part = form.columns.pop(key).numbers()
            columns.setdefault(key, unrecorded_column(size))
            columns[key].values[rows], columns[key].recorded[rows] = part.values, part.recorded
        begin = rows.stop
    return columns


def _steps(columns: Mapping[str, Numbers], count: int) -> Ints:
    """Return the step of each line, `NO_STEP` where it has none."""
    step_columns = [columns[name] for name in ("iter", "step") if name in columns]
    return (
        steps_from(fill_missing(*step_columns) if len(step_columns) > 1 else step_columns[0])
        if step_columns
        else np.full(count, NO_STEP, np.int64)
    )


def _begins_as(line: str, start: int, head: str) -> bool:
    """Tell whether a line has a number where lines with a step have their first value."""
    return bool(head) and line.startswith(head, start) and line[start + len(head) :].lstrip(" ")[:1].isdigit()


class _Scanner:
    """Collects lines of a log; a line in a known form costs one match."""

    def __init__(self, dialect: Dialect) -> None:
        self.forms: list[LinePattern] = []
        self.facts: list[RunFact] = []
        self.sightings: list[ErrorLine] = []
        self.notes: list[str] = []
        self._dialect = dialect
        self._form = unmatchable_pattern(())
        self._odd: dict[tuple[str, ...], LinePattern] = {}
        self._unread: list[int] = []  # lines that begin like those with a step

    def notes_on_broken(self) -> list[str]:
        """Return notes on lines with a step that could not be read, or hold a key twice."""
        notes = []
        if self._unread:
            what = "1 line begins" if len(self._unread) == 1 else f"{len(self._unread):,} lines begin"
            notes.append(f"{what} as a step's do and could not be read, first line {self._unread[0]:,}: left out")
        if count := sum(len(form.origins) for form in self.forms if form.is_fused):
            what = "1 line holds" if count == 1 else f"{count:,} lines hold"
            notes.append(f"{what} a step or a key twice, as lines without a line end between them do: the first was taken")
        return notes

    @property
    def unwanted(self) -> list[str]:
        """Keys that were not taken, in the order of the log."""
        return list(dict.fromkeys(key for form in self.forms for key in form.others))

    def take_all(self, data: bytes) -> int:
        """Add all lines of a log, and return their number."""
        lines = 0
        for block in blocks(data):
            self.take(block.first, block.lines)
            lines = block.first + len(block.lines) - 1
            if block.torn is not None:
                lines += 1
                self.take_torn(lines, block.torn)
        return lines

    def take(self, first: int, lines: Sequence[str]) -> None:
        """Add the lines of a block."""
        for begin in range(0, len(lines), CHUNK_LINES):
            left = lines[begin : begin + CHUNK_LINES]
            numbers: Sequence[int] = range(first + begin, first + begin + len(left))
            for form in self.forms:
                numbers, left = form.take_all(numbers, left)
            self._look_at([(number, line) for number, line in zip(numbers, left, strict=True) if not self._takes(number, line)])
            self._flush()

    def take_torn(self, number: int, line: str) -> None:
        """Add a last line without a line break, unless a part of it may be missing."""
        before = len(self.forms)
        if not self._takes(number, line):
            self._look_at([(number, line)])
        elif before and (len(self.forms) > before or not (self._form.closed or self._is_whole())):
            for pending in (self._form.texts, self._form.numbers, self._form.prefixes):
                pending.clear()
            self.notes.append(f"the last line, {number:,}, has no line end and may have been cut: it was left out")
        self._flush()

    def rows(self) -> StepLines:
        """Return all lines with steps added so far."""
        forms = [form for form in [*self.forms, *self._odd.values()] if len(form.origins)]
        origin = concatenated([form.origins.whole() for form in forms])
        columns = _joined(forms)
        steps = _steps(columns, len(origin.lines))
        columns.pop("step", None)
        good = steps != NO_STEP
        if not good.all():
            self.notes.append(f"{counted(int((~good).sum()), 'line has', 'lines have')} no whole step of 0 or more: left out")
        rows = StepLines(steps, origin, columns).kept(good)
        lines = rows.origin.lines
        return rows if (lines[1:] >= lines[:-1]).all() else rows.at(np.argsort(lines, kind="stable"))

    def _takes(self, number: int, line: str) -> bool:
        """Add a line with a step, in a known form or else a new one; return whether it was added."""
        if len(line) > MAX_LINE or not any(hint in line for hint in self._dialect.hints):
            return False
        start = prefix_end(line)
        for form in reversed(self.forms):
            if (match := form.match(line, start)) is not None:
                form.take(number, line[:start], match.groups())
                self._form = form
                return True
        cells = self._dialect.cells(line, start)
        if not cells:
            if len(self._unread) < MAX_FACTS and any(_begins_as(line, start, form.head) for form in self.forms):
                self._unread.append(number)
            return False
        if len(self.forms) < MAX_FORMS:
            self._form = form = learn_pattern(line, start, cells, self._dialect.wanted)
            self.forms.append(form)
        else:
            cells = [cell for cell in cells if self._dialect.wanted(cell.key)]
            keys = tuple(cell.key for cell in cells)
            form = self._odd.setdefault(keys, unmatchable_pattern(keys))
        # Use the form's own match, because the key of its last value may occur twice; an odd line is added by its cells.
        match = form.match(line, start)
        cut = (line[cell.start : cell.end] for cell in cells if cell.key in form.keys)
        form.take(number, line[:start], tuple(cut) if match is None else match.groups())
        return True

    def _look_at(self, others: Sequence[tuple[int, str]]) -> None:
        """Search lines without a step for facts and errors."""
        for number, line in lines_with(others, self._dialect.needles):
            start = prefix_end(line)
            for key, value in self._dialect.facts(line[start : start + MAX_LINE]) if len(self.facts) < MAX_FACTS else ():
                self.facts.append(RunFact(number, key, value, parse_prefix(line[:start])))
        for number, line in lines_with(others, NEEDLES) if len(self.sightings) < MAX_SIGHTINGS else ():
            if (seen := error_line(number, line)) is not None:
                self.sightings.append(seen)

    def _flush(self) -> None:
        for form in (*self.forms, *self._odd.values()):
            form.flush()

    def _is_whole(self) -> bool:
        """Tell whether the last value of the last line has as many decimals as that of the previous line in the same form."""
        last, before = self._form.texts[-1][-1], self._form.last
        return bool(before) and len(last.partition(".")[2]) == len(before.partition(".")[2])
