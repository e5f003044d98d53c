"""The interview in Markdown: a table for each phase, its verdict, and the commands that show more."""

from collections.abc import Iterator

from ckaudit.contract.interview import Answer, Phase
from ckaudit.reports.markdown_text import code, text


def phases(found: list[Phase]) -> list[str]:
    """Return one block for each phase, with its commands below."""
    return ["\n".join(_phase(phase)) for phase in found]


def _phase(phase: Phase) -> Iterator[str]:
    yield f"**Phase {phase.number}: {text(phase.title)}**\n"
    yield "| question | answer | what it rests on |"
    yield "|---|---|---|"
    for answer in phase.answers:
        yield f"| {code(answer.id)} {text(answer.question)} | {_word(answer)} | {text(answer.sentence)} |"
    if phase.verdict:
        yield f"\n{text(phase.verdict)}"
    if phase.pointers:
        yield ""
    for pointer in phase.pointers:
        why = f" ({text(pointer.why)})" if pointer.why else ""
        yield f"- {code(pointer.id)} {text(pointer.question)} {code(pointer.command)}{why}"


def _word(answer: Answer) -> str:
    word = answer.word.replace("_", " ")
    return f"**{word}**" if answer.word == "bad" else word
