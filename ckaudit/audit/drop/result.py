"""What the search for the reason of a benchmark's fall comes to: plain data that every renderer draws alike."""

from typing import Literal

from msgspec import Struct

Said = Literal["changed", "steady", "not_recorded", "too_few", "not_applicable", "remark"]
Outcome = Literal["passed", "failed", "not_judged", "advice", "not_reached"]


class Fall(Struct, frozen=True, kw_only=True):
    """When the benchmark fell.

    Attributes:
        benchmark: Label of the score; empty: the user said when.
        before: Last step of the good time.
        after: First step of the bad time.
        high: Score at `before`; None: not recorded.
        low: Score at `after`.
        limit: How much of a fall noise alone would make.
        others: Further benchmarks that fell between the same steps.
        is_back: A later step whose score is as high again.
    """

    benchmark: str
    before: int
    after: int
    high: float | None = None
    low: float | None = None
    limit: float | None = None
    others: tuple[str, ...] = ()
    is_back: int | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """One number on both sides of the fall.

    Attributes:
        metric: Its name in the catalogue, or the code of a rule.
        said: What it says; a remark decides nothing.
        sentence: The same in words, with numbers and steps.
        label: Which source, filter or benchmark.
        before: Its value before; None: there is none, or it is a word.
        after: Its value after.
        limit: How far apart they may be.
        step: The first step beyond that.
        unit: Unit of these, "1" for a pure number.
        record: What records it, where it is missing.
    """

    metric: str
    said: Said
    sentence: str
    label: str = ""
    before: float | None = None
    after: float | None = None
    limit: float | None = None
    step: int | None = None
    unit: str = "1"
    record: tuple[str, ...] = ()


class Gate(Struct, frozen=True, kw_only=True):
    """One question of the procedure, with its answer.

    Attributes:
        row: SR-1 to SR-4.
        question: What is asked.
        outcome: The answer; advice: no number can tell, the guide says what to try.
        provisional: Whether an earlier gate could not be judged, so that this one may be beside the point.
        sentence: The answer in words.
        do: What to do about it now.
        evidence: What it rests on, changes first.
    """

    row: str
    question: str
    outcome: Outcome
    provisional: bool
    sentence: str
    do: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Advice(Struct, frozen=True, kw_only=True):
    """One row of the guide to architecture.

    Attributes:
        row: ARC-1 to ARC-3, ME-1 to ME-4.
        title: What it is about.
        when: Which benchmarks point to it.
        text: What to know of it.
        test: What to try, one change at a time.
        facts: Numbers that others published, each with its source.
        here: What this run recorded of it.
        not_applicable: Why it makes no sense for this run; empty: it does.
    """

    row: str
    title: str
    when: str
    text: str
    test: str
    facts: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    not_applicable: str = ""


class Drop(Struct, frozen=True, kw_only=True):
    """The whole procedure for one run.

    Attributes:
        subject: The run, as the user named it.
        verdict: One sentence: which gate is the answer.
        answer: Row of the gate that is the answer; None: there is none.
        provisional: Whether an earlier gate than the answer could not be judged.
        fall: When the benchmark fell; None: no recorded score did.
        gates: The four gates in order; none where nothing fell.
        guide: The guide to architecture, for gate 4.
        notes: What a reader must know of how the run was read.
        step: Last step recorded.
        files: Files read.
    """

    subject: str
    verdict: str
    answer: str | None
    provisional: bool
    fall: Fall | None
    gates: tuple[Gate, ...] = ()
    guide: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    step: int | None = None
    files: int = 0
