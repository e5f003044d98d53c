"""The part of `ck.report.v1` that holds questions and answers: by phase, with words, numbers, and where to look on."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ckaudit.contract.schema.numbers import Number, doc

Word = Literal["good", "watch", "bad", "not_recorded", "not_applicable"]
WORDS: tuple[Word, ...] = ("good", "watch", "bad", "not_recorded", "not_applicable")

PhaseNumber = Annotated[int, Meta(ge=1, le=7)]


class Answer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What a run says to one question."""

    id: Annotated[str, doc("The question, such as D4.2; `ckaudit explain` knows it.")]
    question: Annotated[str, doc("The question in words.")]
    word: Annotated[Word, doc("The answer: what is missing is never good.")]
    sentence: Annotated[str, doc("What it rests on, with the numbers and their steps.")]
    numbers: Annotated[dict[str, Number], doc("The numbers by name.")] = {}
    missing: Annotated[list[str], doc("What would have to be recorded for it: metrics, scalars, or a longer record.")] = []
    findings: Annotated[list[str], doc("Codes of the findings that bear on it, gravest first; an answer is never better.")] = []
    causes: Annotated[list[str], doc("Causes of these findings, likeliest first.")] = []


class Pointer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The command that shows more."""

    id: Annotated[str, doc("The row of the map, such as MAP-2.")]
    question: Annotated[str, doc("What one wants to know.")]
    command: Annotated[str, doc("The command for it.")]
    why: Annotated[str | None, doc("Why it is another command than usual; null: it is the usual one.")] = None


class Phase(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The questions of one phase of a training."""

    number: Annotated[PhaseNumber, doc("1 to 7.")]
    title: Annotated[str, doc("What the phase is about.")]
    answers: Annotated[list[Answer], doc("In the order of the questions.")]
    verdict: Annotated[str | None, doc("What the answers come to, where the phase ends in a decision; null: it does not.")] = None
    pointers: Annotated[list[Pointer], doc("Where to look on.")] = []
