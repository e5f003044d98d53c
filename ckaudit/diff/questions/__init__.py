"""Questions about two runs: pure functions of both that return a verdict on the second, with its numbers."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Literal

from msgspec import Struct

from ckaudit.catalogue import Catalogue
from ckaudit.contract.schema.diff import Answer, Unlike, Word
from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.diff.run_pair import RunPair, RunSide

Weighs = Literal["loss", "stability", "health", "cost"]


class PairAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a question about two runs.

    Attributes:
        word: The verdict on the second run.
        sentence: The numbers, or what is missing.
        left: Value of the first run; for a loss with replicas, the mean of all of them.
        left_alone: Value of the first run by itself, if `left` is a mean of several.
        right: Value of the second run.
        band: Largest difference that noise explains.
        unit: Unit of the values and the band.
        grave: Whether the word counts for the pair as a whole.
    """

    word: Word
    sentence: str
    left: float | None = None
    left_alone: float | None = None
    right: float | None = None
    band: float | None = None
    unit: str = "1"
    grave: bool = True


QuestionFunction = Callable[[RunPair], PairAnswer]


class PairQuestion(Struct, frozen=True, eq=False):
    """One catalogued question.

    Attributes:
        name: The function's name.
        title: The question, the docstring's first line.
        place: Position in the catalogue.
        weighs: Subject of its verdict.
        function: The function that answers it.
        falls_with: Names of questions without which it cannot be answered.
    """

    name: str
    title: str
    place: int
    weighs: Weighs
    function: QuestionFunction
    falls_with: tuple[str, ...] = ()

    def __call__(self, both: RunPair, unlike: list[Unlike]) -> tuple[Answer, bool]:
        """Return the answer, and whether it counts for the pair as a whole."""
        against = next((mismatch.message for mismatch in unlike if {self.name, *self.falls_with} & {*mismatch.invalidates}), "")
        answer = PairAnswer(word="incomparable", sentence=f"not comparable: {against}") if against else self.function(both)
        return Answer(
            question=self.name,
            title=self.title,
            word=answer.word,
            left=_as_word(answer.left),
            left_alone=_as_word(answer.left_alone),
            right=_as_word(answer.right),
            band=_as_word(answer.band),
            unit=answer.unit,
            message=answer.sentence,
        ), answer.grave


_QUESTIONS: Catalogue[PairQuestion] = Catalogue("question", "ckaudit.diff.questions")


def question(*, place: int, weighs: Weighs, falls_with: tuple[str, ...] = ()) -> Callable[[QuestionFunction], PairQuestion]:
    """Add a function to the catalogue of questions about two runs.

    Args:
        place: Position in the catalogue.
        weighs: Subject of its verdict.
        falls_with: Names of questions without which it cannot be answered.
    """

    def enter(function: QuestionFunction) -> PairQuestion:
        title = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        entry = PairQuestion(function.__name__, title, place, weighs, function, falls_with)
        return _QUESTIONS.add(entry.name, entry)

    return enter


@cache
def questions() -> dict[str, PairQuestion]:
    """Return every question by its name, in the order of the catalogue."""
    return dict(sorted(_QUESTIONS.units().items(), key=lambda item: item[1].place))


def lower_is_better(left: float, right: float, band: float) -> Word:
    """Return the word for a quantity of which lower values are better.

    >>> lower_is_better(2.0, 2.1, 0.05), lower_is_better(2.0, 1.99, 0.05), lower_is_better(2.0, 2.0, 0.05)
    ('worse', 'within_noise', 'same')
    """
    if left == right:
        return "same"
    if abs(right - left) <= band:
        return "within_noise"
    return "worse" if right > left else "better"


def missing(both: RunPair, *names: str) -> PairAnswer:
    """Return an answer that names what is not recorded; by both, unless one of them has it."""
    left, right = (_last_of(side, names) for side in (both.left, both.right))
    sentence = f"not recorded: {' or '.join(names)}, by {_by_whom(both, names)}"
    is_one = (left is None) != (right is None)
    return PairAnswer(word="not_recorded", sentence=sentence, left=left if is_one else None, right=right if is_one else None)


def _last_of(side: RunSide, names: tuple[str, ...]) -> float | None:
    """Return the last value that a run recorded of the first of these metrics that it has; None if it has none."""
    from ckaudit.metrics import metrics

    known = (metrics()[name](side.run) for name in names if name in metrics())
    series = next((candidate for candidate in known if candidate and candidate.finite.any()), None)
    return None if series is None else float(series.values[series.finite][-1])


def _by_whom(both: RunPair, names: tuple[str, ...]) -> str:
    from ckaudit.metrics import metrics

    known = metrics()
    has = [any(name in known and bool(known[name](side.run)) for name in names) for side in (both.left, both.right)]
    if has[0] != has[1]:
        return "the second run" if has[0] else "the first run"
    return "both at common steps" if has[0] else "either run"


def _as_word(value: float | None) -> Number | None:
    return None if value is None else encode_float(float(value))  # a NumPy number cannot be encoded in a document
