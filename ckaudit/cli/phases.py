"""The option that puts the questions of some phases: all of them, where it stands alone."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from ckaudit.errors import UsageError

OPTION = "--questions"
ALL = "1-7"
PHASES = re.compile(r"[\d,-]+")

Questions = Annotated[
    str,
    typer.Option(
        OPTION,
        metavar="[PHASES]",
        help="Answer the playbook's questions instead: of all seven phases, or of those named, as in 3, 1,4 or 1-3.",
        show_default=False,
        autocompletion=lambda: list("1234567"),
    ),
]


def alone(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which the option has its value, where it was given without one.

    >>> alone(["triage", "--questions", "runs/a"]), alone(["triage", "runs/a", "--questions", "1,4"])
    (['triage', '--questions=1-7', 'runs/a'], ['triage', 'runs/a', '--questions', '1,4'])
    """
    words = list(arguments)
    for place, word in enumerate(words):
        if word == "--":
            break
        if word == OPTION and not PHASES.fullmatch(" ".join(words[place + 1 : place + 2])):
            words[place] = f"{OPTION}={ALL}"
    return words


def phases(word: str) -> tuple[int, ...]:
    """Return the phases that a word such as 1,4-6 names, in order; none for an empty one.

    Raises:
        UsageError: Where it names something else.
    """
    found: set[int] = set()
    for part in word.split(",") if word else ():
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if not all(len(end) == 1 and end in "1234567" for end in ends) or ends[0] > ends[1]:
            raise UsageError(f"{OPTION} {word!r} names no phases", hint=f"phases are 1 to 7: write {OPTION} 3, 1,4 or 1-3")
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(sorted(found))
