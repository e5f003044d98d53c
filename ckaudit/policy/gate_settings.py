"""The terms of `ckaudit gate`: what stands in the policy under [gate], and which of it holds where it says nothing."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Unanswered = Literal["error", "fail", "pass"]
Words = Annotated[str, Meta(min_length=1)]
QUESTIONS: tuple[str, ...] = (
    "final_loss",
    "smoothed_loss",
    "loss_at_equal_tokens",
    "loss_at_equal_time",
    "steps_to_loss",
    "validation_loss",
    "validation_slices",
    "stability",
    "clip_rate",
    "speed",
    "memory",
    "health",
)
GROUPS: dict[str, tuple[str, ...]] = {
    "loss": ("final_loss", "smoothed_loss", "loss_at_equal_tokens"),
    "validation": ("validation_loss", "validation_slices"),
}
"""Words that stand for several questions."""
DEFAULT = ("loss", "validation", "stability", "health")


class Terms(Struct, frozen=True, kw_only=True):
    """What a canary is held to.

    Attributes:
        questions: Questions that count, or groups of them.
        allow: By question, the loss that is accepted: a share as "10%", or a number of the question's unit.
        incomparable: What becomes of a canary that cannot be compared: "error" leaves with 2, "fail" with 1, "pass" with 0.
        expect: Differences that are meant, by name or pattern; where given, any other makes the comparison void.
    """

    questions: tuple[Words, ...] = DEFAULT
    allow: dict[str, float | str] = {}
    incomparable: Unanswered = "error"
    expect: list[Words] | None = None

    def counts(self) -> list[str]:
        """Return the questions that count, each once, in the order of the catalogue."""
        named = {question for word in self.questions for question in meant(word)}
        return [question for question in QUESTIONS if question in named]

    def allowance(self, question: str) -> float | str | None:
        """Return what a question may lose, None where nothing is said; its own word goes before that of its group."""
        if question in self.allow:
            return self.allow[question]
        return next((self.allow[word] for word, group in GROUPS.items() if question in group and word in self.allow), None)


def meant(word: str) -> tuple[str, ...]:
    """Return the questions that a word means.

    >>> meant("validation"), meant("speed")
    (('validation_loss', 'validation_slices'), ('speed',))
    """
    return GROUPS.get(word, (word,))


def known_words() -> tuple[str, ...]:
    """Return every word that may name questions."""
    return (*GROUPS, *QUESTIONS)


def share(allowance: float | str) -> float | None:
    """Return an allowance that is a share of the reference as a number, None for one that is not.

    >>> share("10%"), share("2.5 %"), share(0.05)
    (0.1, 0.025, None)
    """
    return float(allowance.rstrip("% ")) / 100 if isinstance(allowance, str) else None


def is_allowance(value: Any) -> bool:
    """Tell whether a value is a number from 0 on, or one in per cent."""
    if isinstance(value, str):
        number, mark, rest = value.partition("%")
        return bool(mark) and not rest and number.strip().replace(".", "", 1).isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
