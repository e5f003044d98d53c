"""What a question is: a pure function from series and findings to one of five words, a sentence and its numbers."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from ckaudit.catalogue import Catalogue, thresholds_of
from ckaudit.contract.schema.report import WORDS, Word
from ckaudit.metrics import Metric
from ckaudit.metrics.metric import metrics_among
from ckaudit.rules.rule import FactsMarker


class SeriesAnswer(Struct, frozen=True, kw_only=True):
    """The answer from the series alone.

    Attributes:
        word: The answer.
        sentence: Facts with their numbers and steps; the word judges, not the sentence.
        numbers: The numbers by name.
        missing: What would have to be recorded for another word.
        broke: Whether the question raised an error instead of answering.
        no_number: Whether it is bad only because an input is not finite at any step; the finding is then what caused that.
    """

    word: Word
    sentence: str
    numbers: dict[str, float] = {}
    missing: tuple[str, ...] = ()
    broke: bool = False
    no_number: bool = False


class FindingsMarker:
    """Placeholder in `wants` for all findings of the run that are more than a note."""


FINDINGS = FindingsMarker()
Input = Metric | FactsMarker | FindingsMarker
QuestionFunction = Callable[..., SeriesAnswer]


class Question(Struct, frozen=True, eq=False):
    """One catalogued question.

    Attributes:
        id: Its row in the playbook, such as D4.2 or MP-4.
        phase: 1 to 7.
        text: The question, the docstring's first line.
        needs: Inputs without which the answer is "not recorded".
        wants: Inputs that may be missing.
        rules: Names of the rules whose findings bear on it: no answer is better than they are.
        weighs: Names of the rules whose findings bear on it at certain places or times, which it judges itself.
        causes: Names of the causes that are about the same: where one is likely, the answer is at best to be watched.
        doc: The whole docstring.
        name: The function's name.
    """

    id: str
    phase: int
    text: str
    needs: tuple[Input, ...]
    wants: tuple[Input, ...]
    rules: tuple[str, ...]
    doc: str
    name: str
    function: QuestionFunction
    weighs: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    @property
    def metrics(self) -> list[Metric]:
        """The metrics among the inputs."""
        return metrics_among((*self.needs, *self.wants))

    @property
    def thresholds(self) -> dict[str, Any]:
        """Keyword-only parameters and their defaults."""
        return thresholds_of(self.function)


_QUESTIONS: Catalogue[Question] = Catalogue("question", "ckaudit.questions")


def question(
    id: str,  # noqa: A002  what it is called
    *,
    needs: Sequence[Input] = (),
    wants: Sequence[Input] = (),
    rules: Sequence[str] = (),
    weighs: Sequence[str] = (),
    causes: Sequence[str] = (),
) -> Callable[[QuestionFunction], Question]:
    """Enter a function into the catalogue of questions.

    The function takes one positional argument per need (a Series with at least one finite cell, or the Manifest for
    FACTS), one per want (the same, or None; Findings for FINDINGS), and its thresholds as keyword-only defaults.
    """

    def enter(function: QuestionFunction) -> Question:
        doc = inspect.cleandoc(function.__doc__ or "")
        phase = int(id[1]) if id.startswith("D") else 7
        text, name = doc.partition("\n")[0], function.__name__
        entry = Question(
            id, phase, text, tuple(needs), tuple(wants), tuple(rules), doc, name, function, tuple(weighs), tuple(causes)
        )
        return _QUESTIONS.add(id, entry)

    return enter


@cache
def questions() -> dict[str, Question]:
    """Return every question by its id, by phase and in the order of the playbook."""
    return dict(sorted(_QUESTIONS.units().items(), key=lambda item: (item[1].phase, len(item[0].partition("-")[0]), item[0])))


def not_recorded(sentence: str, *missing: str) -> SeriesAnswer:
    """Say that nothing can be said, and what would have to be recorded."""
    return SeriesAnswer(word="not_recorded", sentence=sentence, missing=missing)


def not_applicable(sentence: str) -> SeriesAnswer:
    """Say that the question makes no sense for the run."""
    return SeriesAnswer(word="not_applicable", sentence=sentence)


def word_if_high(value: float, *, watch: float, bad: float) -> Word:
    """Return the word for a number that is the worse the larger it is.

    >>> word_if_high(5, watch=10, bad=100), word_if_high(50, watch=10, bad=100), word_if_high(100.5, watch=10, bad=100)
    ('good', 'watch', 'bad')
    """
    return "bad" if value > bad else "watch" if value > watch else "good"


def word_if_low(value: float, *, watch: float, bad: float) -> Word:
    """Return the word for a number that is the worse the smaller it is.

    >>> word_if_low(0.5, watch=0.1, bad=0.01), word_if_low(0.05, watch=0.1, bad=0.01), word_if_low(0.001, watch=0.1, bad=0.01)
    ('good', 'watch', 'bad')
    """
    return "bad" if value < bad else "watch" if value < watch else "good"


def lenient_before(word: Word, step: int, until: int) -> Word:
    """Return a word that is at worst "watch" before a step: what has just begun cannot be done yet.

    >>> lenient_before("bad", 100, 500), lenient_before("bad", 500, 500), lenient_before("good", 100, 500)
    ('watch', 'bad', 'good')
    """
    return "watch" if word == "bad" and step < until else word


def worst_of(*words: Word) -> Word:
    """Return the worst of several words: bad before watch before good.

    >>> worst_of("good", "watch", "good")
    'watch'
    """
    return max(words, key=WORDS[:3].index)


# The seven phases of a training, and the map from what one wants to know to the command that shows it.
class MapRow(NamedTuple):
    """One row of the map.

    Attributes:
        id: Such as MAP-1.
        phases: Phases that it stands under.
        question: What one wants to know.
        metrics: What `ckaudit metrics` shows of it, as far as it was recorded.
        command: Another command, where numbers are not what tells; {run} is the run, {event} the step of its first event.
    """

    id: str
    phases: tuple[int, ...]
    question: str
    metrics: tuple[str, ...] = ()
    command: str = ""


PHASES: dict[int, str] = {
    1: "Is the machinery right?",
    2: "Does it learn?",
    3: "What has it learnt?",
    4: "Is it stable?",
    5: "Does it generalize?",
    6: "Is it ready for what comes next?",
    7: "What does it know by heart?",
}

MAP: tuple[MapRow, ...] = (
    MapRow("MAP-1", (1,), "Is it training?", ("train_loss_raw", "initial_loss_excess", "gradient_norm", "parity_loss_diff")),
    MapRow("MAP-2", (1,), "Are the gradients right?", ("waterfall_ratio", "block_gradient_norm", "gradient_check_error")),
    MapRow("MAP-3", (2, 3), "What is it learning?", ("movement_rank", "relative_movement", "head_kind_share", "head_similarity")),
    MapRow("MAP-4", (2, 7), "Does it memorize?", ("memorization_curve", "memorization_gap", "train_loss_slope", "train_ppl")),
    MapRow("MAP-5", (4,), "What went wrong?", command="ckaudit triage {run} --event {event}"),
    MapRow(
        "MAP-6", (5, 6), "Is pretraining done?", ("val_slope", "val_slope_p", "steps_since_improvement", "probe_group_perplexity")
    ),
    MapRow("MAP-7", (6,), "Is it ready for fine-tuning?", ("microbench_score", "slice_val_loss", "probe_accuracy")),
)
"""In the order of the playbook. A row without anything recorded leads to `ckaudit coverage`, which says how to record it."""
