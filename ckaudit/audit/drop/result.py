"""Result of the search for the reason of a benchmark's fall: plain data that every renderer draws."""

from typing import Literal

from msgspec import Struct

Said = Literal["changed", "steady", "not_recorded", "too_few", "not_applicable", "remark"]
Outcome = Literal["passed", "failed", "not_judged", "advice", "not_reached"]


class Fall(Struct, frozen=True, kw_only=True):
    """The fall of a benchmark.

    Attributes:
        benchmark: Label of the score; empty if the user gave the step.
        before: Last good step.
        after: First bad step.
        high: Score at `before`; None: not recorded.
        low: Score at `after`.
        limit: Largest fall that noise alone would make.
        others: Further benchmarks that fell between the same steps.
        is_back: A later step at which the score is as high again.
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
        metric: Catalogue name, or code of a rule.
        said: Outcome; a remark decides nothing.
        sentence: The outcome in words, with numbers and steps.
        label: Source, filter or benchmark.
        before: Value before; None if there is none, or if it is a word.
        after: Value after.
        limit: Limit of their difference.
        step: First step beyond the limit.
        unit: Unit of these, "1" for a pure number.
        record: Lines that record it if it is missing.
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
        question: The question.
        outcome: The answer; advice means that no number decides, and the guide says what to try.
        provisional: Whether an earlier gate could not be judged, so that this one may not matter.
        sentence: The answer in words.
        do: What to do about it now.
        evidence: Its evidence, changes first.
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
        title: Its topic.
        when: Which benchmarks point to it.
        text: Background.
        test: What to try, one change at a time.
        facts: Published numbers, each with its source.
        here: What this run recorded about it.
        not_applicable: Why it does not apply to this run; empty: it does.
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
        verdict: One sentence with the answer.
        answer: Row of the gate that is the answer; None: there is none.
        provisional: Whether an earlier gate than the answer could not be judged.
        fall: The fall; None if no recorded score fell.
        gates: The four gates in order; empty if nothing fell.
        guide: The guide to architecture, for gate 4.
        notes: Notes on how the run was read.
        step: Last recorded step.
        files: Number of files read.
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
