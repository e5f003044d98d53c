"""What coverage says: every entry of the catalogue in one run, the checks that wait, and what to do."""

from msgspec import Struct

from ckaudit.metrics.catalogue import RANKS, Importance


class MissingInput(Struct, frozen=True, kw_only=True):
    """One number that is missing, or a side of it that a check reads.

    Attributes:
        name: The entry of the catalogue, or an argument of the recorder.
        level: How much the run needs it.
        waiting: Rules that cannot judge without it.
        readers: Codes of rules and names of causes that would read it.
        by: The entry whose line records it: itself, or what it is made of.
    """

    name: str
    level: Importance
    waiting: tuple[str, ...] = ()
    readers: tuple[str, ...]
    by: str

    @property
    def urgency(self) -> tuple[int, int, int]:
        """Sort key: what most rules wait for first, then what most rules and causes would read, then the most needed."""
        return -len(self.waiting), -len(self.readers), RANKS.index(self.level)


class Line(Struct, frozen=True, kw_only=True):
    """One line to write or to run.

    Attributes:
        code: The line, to be copied as it stands.
        when: In a program, when it comes; empty: it is no line of the recorder, or stands alone.
        brings: In a program, what it records: what is missing and what most rules and causes wait for first.
    """

    code: str
    when: str = ""
    brings: tuple[str, ...] = ()


class Extra(Struct, frozen=True, kw_only=True):
    """What a line records with more than it shows.

    Attributes:
        what: An option, or a column of a file.
        names: What it records.
    """

    what: str
    names: tuple[str, ...]


class Remedy(Struct, frozen=True, kw_only=True):
    """What records several of the missing numbers.

    Attributes:
        lines: What to write or to run; none where the recorder needs none.
        where: Where it goes, or what it is.
        names: What it records, what most rules and causes wait for first, then the most needed.
        extras: What of these takes more than the lines as they stand.
        besides: Another way, in words; empty: there is none to tell.
        waiting: Rules that can judge with these lines and could not without, unless remedies before this one let them.
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
        """The lines as they are copied."""
        return "\n".join(line.code for line in self.lines)


class Row(Struct, frozen=True, kw_only=True):
    """One entry of the catalogue in one run.

    Attributes:
        name: The entry.
        rows: Rows of the lists that it answers.
        level: How much this run needs it.
        title: What it is.
        recorded: Whether the run has at least one value of it that rests on enough.
        partial: Whether it has values, but of too little to count: of none of `evidence`.
        evidence: Metrics or scalars of which one must be there for it to count; empty: any value counts.
        inputs: Entries it is made of that the run has not: their lines record it.
        unusable: What is wrong with its inputs where all are there; empty: nothing, or not all are.
        beside: Metrics of the same playbook that the run has.
        lacks: Metrics of the same playbook that the run has not.
        waiting: Rules that cannot judge without what is missing of it: itself, or what it covers.
        rules: Rules for a run like this that would read that.
        causes: Causes that would.
        record: What records it, in words.
        not_applicable: Why it makes no sense for this run; empty: it does.
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
    """A rule that could not judge the run, because something is not recorded.

    Attributes:
        code: The rule.
        name: Its name.
        needs: The metrics and arguments that are missing, where one of several would do all of them, or "run.json".
        detail: The same as a sentence, as triage says it.
        place: Number of the remedy after which it can judge, counted from 1; None: it takes several, or none does.
        places: Numbers of the remedies that let it judge together; empty: they do not.
    """

    code: str
    name: str
    needs: tuple[str, ...]
    detail: str
    place: int | None
    places: tuple[int, ...]


class Young(Struct, frozen=True, kw_only=True):
    """A rule that has its numbers, but too few of them so far.

    Attributes:
        code: The rule.
        name: Its name.
        detail: How many there are, and how many it needs.
    """

    code: str
    name: str
    detail: str


class Coverage(Struct, frozen=True, kw_only=True):
    """The catalogue held against one run.

    Attributes:
        subject: What was looked at.
        part_of: The folder of the run where what was looked at is only one file of it; empty: it is the whole.
        scale: nano, medium or large.
        scale_reason: Where that comes from.
        stage: early, steady or late.
        stage_reason: Where that comes from.
        step: The last step recorded.
        over: Whether the run has ended, so that what is missing can be recorded by the next one only.
        files: Files read.
        notes: What a reader must know of how it was read, and which files could not be.
        checks: How many rules there are.
        waiting: Those that could not judge, because something is not recorded, as triage says.
        young: Those that have too few points so far.
        remedies: What to do about what is missing, the one that most rules and causes wait for first.
        rows: Every entry, the most needed first, in the order of the catalogue.
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
        """Return what was not recorded although it makes sense."""
        return [row for row in self.of(level) if not row.recorded]

    def of(self, level: Importance) -> list[Row]:
        """Return what makes sense for the run and is needed that much."""
        return [row for row in self.rows if row.level == level and (row.recorded or not row.not_applicable)]
