"""Result of coverage: every entry of the catalogue in one run, the checks that lack inputs, and what to do."""

from msgspec import Struct

from ckaudit.metrics.catalogue import RANKS, Importance


class MissingInput(Struct, frozen=True, kw_only=True):
    """One missing number, or a covered metric of it that a check reads.

    Attributes:
        name: Catalogue entry, or argument of the recorder.
        level: Importance for the run.
        waiting: Rules that cannot judge without it.
        readers: Rules and causes that would read it.
        by: The entry whose line records it: itself, or one that it is computed from.
    """

    name: str
    level: Importance
    waiting: tuple[str, ...] = ()
    readers: tuple[str, ...]
    by: str

    @property
    def urgency(self) -> tuple[int, int, int]:
        """Sort key: first what most rules lack, then what most rules and causes would read, then the most important."""
        return -len(self.waiting), -len(self.readers), RANKS.index(self.level)


class Line(Struct, frozen=True, kw_only=True):
    """One line to write or to run.

    Attributes:
        code: The line, ready to copy.
        when: In a program, when it comes; empty: it is no line of the recorder, or comes alone.
        brings: In a program, what it records: first the missing numbers that most rules and causes need.
    """

    code: str
    when: str = ""
    brings: tuple[str, ...] = ()


class Extra(Struct, frozen=True, kw_only=True):
    """Numbers that a line records only with an addition.

    Attributes:
        what: An option, or a column of a file.
        names: What it records.
    """

    what: str
    names: tuple[str, ...]


class Remedy(Struct, frozen=True, kw_only=True):
    """A way to record several missing numbers.

    Attributes:
        lines: Lines to write or run; empty if the recorder needs none.
        where: Where they go, or what they are.
        names: Numbers that it records: first those that most rules and causes need, then the most important.
        extras: Those of them that need additions to the lines.
        besides: Another way, in words; empty: none.
        waiting: Rules that these lines enable, except those that earlier remedies enable.
        readers: Rules and causes that would read any of them.
    """

    lines: tuple[Line, ...]
    where: str
    names: tuple[str, ...]
    extras: tuple[Extra, ...] = ()
    besides: str = ""
    waiting: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The lines as text to copy."""
        return "\n".join(line.code for line in self.lines)


class Row(Struct, frozen=True, kw_only=True):
    """One entry of the catalogue in one run.

    Attributes:
        name: The entry.
        rows: Rows of the lists that it answers.
        level: Importance for this run.
        title: Description of the entry.
        recorded: Whether the run has at least one value of it with enough evidence.
        partial: Whether it has values that do not count, because none of `evidence` is recorded.
        evidence: Metrics or scalars of which one must be recorded for it to count; empty: any value counts.
        inputs: Missing entries that it is computed from: their lines record it.
        unusable: What is wrong with its inputs if all exist; empty: nothing, or not all exist.
        beside: Metrics of the same playbook that the run has.
        lacks: Metrics of the same playbook that the run lacks.
        waiting: Rules that cannot judge without its missing part: itself, or a covered metric.
        rules: Applicable rules that would read that part.
        causes: Causes that would read it.
        record: How it is recorded, in words.
        not_applicable: Why it does not apply to this run; empty: it does.
    """

    name: str
    rows: tuple[str, ...]
    level: Importance
    title: str
    recorded: bool
    partial: bool
    evidence: tuple[str, ...]
    inputs: tuple[str, ...]
    unusable: str
    beside: tuple[str, ...]
    lacks: tuple[str, ...]
    waiting: tuple[str, ...]
    rules: tuple[str, ...]
    causes: tuple[str, ...]
    record: str
    not_applicable: str


class Waiting(Struct, frozen=True, kw_only=True):
    """A rule that could not judge the run because something is not recorded.

    Attributes:
        code: The rule.
        name: Its name.
        needs: Missing metrics and arguments, including all alternatives, or "run.json".
        detail: The same as a sentence of triage.
        place: Number, from 1, of the remedy that enables it; None if it takes several, or none does.
        places: Numbers of the remedies that enable it together; empty if they do not.
    """

    code: str
    name: str
    needs: tuple[str, ...]
    detail: str
    place: int | None
    places: tuple[int, ...]


class Young(Struct, frozen=True, kw_only=True):
    """A rule whose inputs have too few points so far.

    Attributes:
        code: The rule.
        name: Its name.
        detail: How many points there are, and how many it needs.
    """

    code: str
    name: str
    detail: str


class Coverage(Struct, frozen=True, kw_only=True):
    """The catalogue compared with one run.

    Attributes:
        subject: The examined path.
        part_of: The run's folder if only one of its files is examined; empty: the whole run is.
        scale: nano, medium or large.
        scale_reason: Source of the scale.
        stage: early, steady or late.
        stage_reason: Source of the stage.
        step: Last recorded step.
        over: Whether the run has ended, so that only the next run can record what is missing.
        files: Number of files read.
        notes: Notes on how it was read, and on unreadable files.
        checks: Number of rules.
        waiting: Rules that could not judge because something is not recorded.
        young: Rules with too few points so far.
        remedies: Remedies, first the one that most rules and causes need.
        rows: Every entry, the most important first, then in the order of the catalogue.
    """

    subject: str
    part_of: str
    scale: str
    scale_reason: str
    stage: str
    stage_reason: str
    step: int | None
    over: bool
    files: int
    notes: tuple[str, ...]
    checks: int
    waiting: tuple[Waiting, ...]
    young: tuple[Young, ...]
    remedies: tuple[Remedy, ...]
    rows: tuple[Row, ...]

    def missing(self, level: Importance) -> list[Row]:
        """Return the applicable entries of a level that are not recorded."""
        return [row for row in self.of(level) if not row.recorded]

    def of(self, level: Importance) -> list[Row]:
        """Return the applicable entries of a level."""
        return [row for row in self.rows if row.level == level and (row.recorded or not row.not_applicable)]
