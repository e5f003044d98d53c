"""Definition of a tab: a question with charts that answer it, found by importing the modules of `ckaudit.panels.tabs`."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

from msgspec import Struct

from ckaudit.audit.coverage.applicability import missing_inputs, unusable, why_metric_not_applicable
from ckaudit.audit.coverage.remedies import lines_for_run
from ckaudit.catalogue import Catalogue
from ckaudit.contract.schema.panels import Answered, Chart, Tab
from ckaudit.contract.schema.report import Answer, Check, Finding
from ckaudit.contract.schema.report import Word as AnswerWord
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries, entry_of, owner_of
from ckaudit.panels.checkpoint_charts import FIELD, grids, ridges, why_none
from ckaudit.panels.metric_charts import bars, curves, heat, side_by_side
from ckaudit.panels.scene import Scene, metrics_of
from ckaudit.questions.question import questions
from ckaudit.rules import rules
from ckaudit.run.run import Run
from ckaudit.wording import plural

Drawn = Callable[[Scene], Chart | None]
Painter = Callable[["TabBuilder"], tuple[Answered, str] | None]
MAX_WORDS = 28  # of an answer; nobody reads more
GRAVITY: tuple[Answered, ...] = ("bad", "watch", "good", "unknown")


class TabKind(Struct, frozen=True, eq=False):
    """One tab of the catalogue.

    Attributes:
        id: Short name, the function's own.
        place: Its position among the tabs.
        question: The docstring's first line.
        kind: A question, or a dashboard.
        asks: Questions of the interview that decide it; without an answer to the first, it is not good.
        related_questions: Questions that are shown with it but do not decide it.
        rules: Names of further rules whose findings belong to it.
        reads: Metrics that it draws.
        paint: Adds charts to a builder; returns word and answer if it judges itself.
    """

    id: str
    place: int
    question: str
    kind: Literal["question", "dashboard"]
    asks: tuple[str, ...]
    related_questions: tuple[str, ...]
    rules: tuple[str, ...]
    reads: tuple[str, ...]
    paint: Painter

    def __call__(self, scene: Scene) -> Tab:
        """Return the tab of a run."""
        builder = TabBuilder(scene)
        own_verdict = self.paint(builder)
        answers, others = scene.answers(self.asks), scene.answers(self.related_questions)
        places = [place for place, finding in enumerate(scene.report.findings) if self.owns(finding)]
        word, text = own_verdict or _settle(
            answers, [scene.report.findings[place] for place in places], self.checks(scene), builder.charts
        )
        return Tab(
            id=self.id,
            question=self.question,
            kind=self.kind,
            word=word,
            answer=text,
            charts=builder.charts,
            answers=[*answers, *others],
            findings=places,
            missing=builder.missing,
        )

    def owns(self, finding: Finding) -> bool:
        """Tell whether a finding belongs here: to a question by its rule, to a dashboard by its metrics."""
        if self.kind == "dashboard":
            return bool(set(metrics_of(finding)) & set(self.reads))
        return finding.name in self.watched

    def checks(self, scene: Scene) -> list[Check]:
        """Return the outcomes of the rules that belong here."""
        if self.kind == "question":
            return [check for check in scene.report.checks if check.name in self.watched]
        reading = {code for code, rule in rules().items() if {metric.name for metric in rule.metrics} & set(self.reads)}
        return [check for check in scene.report.checks if check.code in reading]

    @property
    def watched(self) -> frozenset[str]:
        """Names of the rules that belong here."""
        asked = [questions()[id_] for id_ in (*self.asks, *self.related_questions)]
        return frozenset(self.rules).union(*(question.rules + question.weighs for question in asked))


_TABS: Catalogue[TabKind] = Catalogue("tab", "ckaudit.panels.tabs")


def tab(
    place: int,
    *,
    asks: Sequence[str] = (),
    related_questions: Sequence[str] = (),
    rules: Sequence[str] = (),
    reads: Sequence[str] = (),
    kind: Literal["question", "dashboard"] = "question",
) -> Callable[[Painter], TabKind]:
    """Register a function in the catalogue of tabs."""

    def enter(function: Painter) -> TabKind:
        question = (function.__doc__ or "").partition("\n")[0]
        entry = TabKind(
            function.__name__, place, question, kind, tuple(asks), tuple(related_questions), tuple(rules), tuple(reads), function
        )
        return _TABS.add(entry.id, entry)

    return enter


@cache
def tabs() -> tuple[TabKind, ...]:
    """Return every tab in order."""
    return tuple(sorted(_TABS.units().values(), key=lambda unit: unit.place))


def _settle(
    answers: Sequence[Answer], findings: Sequence[Finding], checks: Sequence[Check], charts: Sequence[Chart]
) -> tuple[Answered, str]:
    """Return the worst word of answers and findings, with its reason in a few words; without any, what the rules could judge.

    A tab is not good if its first question has no answer. The text of findings is shown elsewhere.
    """
    weighed: list[tuple[Answered, str]] = [
        (_word(answer.word), "" if answer.findings else f"{answer.question} {_sentence(answer.sentence)}") for answer in answers
    ]
    weighed += [(_gravity(finding), "") for finding in findings]
    word: Answered = min((rating for rating, _ in weighed), key=GRAVITY.index, default="unknown")
    if word != "unknown":
        sentences = list(dict.fromkeys(text for rating, text in weighed if rating == word and text))
        if word == "good" and weighed[0][0] == "unknown":  # the main subject of the tab is not recorded
            return "unknown", brief(f"{weighed[0][1]} Well as far as known: {' '.join(sentences[:1])}")
        counts = [_counted(findings)] if word != "good" and findings else []
        return word, brief(" ".join([*counts, *sentences[:1]]))
    judged = sum(check.outcome == "passed" for check in checks)
    if judged and charts and not answers:
        nothing = "Nothing but notes" if findings else "Nothing"
        return "good", f"{nothing} found: {judged} of {plural(len(checks), 'rule')} on it could judge."
    if not charts:
        return "unknown", "Nothing of it was recorded."
    return "unknown", brief(next((text for _, text in weighed if text), "No rule judges it."))


def _counted(findings: Sequence[Finding]) -> str:
    steps = [finding.first_step for finding in findings if finding.first_step is not None]
    since = f", the first from step {min(steps)}" if steps else ""
    return f"{plural(len(findings), 'finding')}{since}."


def brief(text: str, max_words: int = MAX_WORDS) -> str:
    """Return the first sentences of a text, at most `max_words` words; if the first is longer, its beginning.

    >>> brief("One two. Three four.", 3), brief("One two three four.", 3)
    ('One two.', 'One two three …')
    """
    words = text.split()
    if len(words) <= max_words:
        return text
    ends = [place + 1 for place, word in enumerate(words[:max_words]) if word.endswith((".", "?", "!"))]
    full = next((end for end in reversed(ends) if not words[end - 1].endswith("?")), 0)  # a question needs its answer
    return " ".join(words[:full]) if full else f"{' '.join(words[:max_words])} …"


def _word(word: AnswerWord) -> Answered:
    return "unknown" if word == "not_recorded" or word == "not_applicable" else word  # noqa: PLR1714  mypy narrows these


def _gravity(finding: Finding) -> Answered:
    """Return the effect of a finding on an answer, as in the interview; a note has none."""
    return "unknown" if finding.severity == "note" else "watch" if finding.severity == "sev2" else "bad"


def _sentence(text: str) -> str:
    first = text[:1].upper() + text[1:]
    return first if first.endswith((".", "!", "?")) else f"{first}."


# Collects the charts of one tab, or the reason if there is nothing to draw.
class TabBuilder:
    """Charts of one tab, and what is missing.

    Attributes:
        scene: The run, and the other run.
        charts: Charts in the order in which they were added.
        missing: One unique sentence for each missing thing.
    """

    def __init__(self, scene: Scene) -> None:
        """Begin with no charts."""
        self.scene = scene
        self.charts: list[Chart] = []
        self.missing: list[str] = []

    def curves(self, name: str, title: str, *shown: str, also: Sequence[str] = (), **options: Any) -> None:
        """Add a chart of metrics over steps; the absence of the metrics in `also` is not reported."""
        self.add(curves(self.scene, name, title, [*shown, *also], **options), *shown, *options.get("right", ()))

    def heat(self, name: str, title: str, metric: str, **options: Any) -> None:
        """Add a heat map of places by steps."""
        self.add_of_both(lambda scene: heat(scene, name, title, metric, **options), metric)

    def bars(self, name: str, title: str, metric: str, **options: Any) -> None:
        """Add the last values as bars."""
        self.add(bars(self.scene, name, title, metric, **options), metric)

    def ridges(self, name: str, title: str, section: str) -> None:
        """Add histograms over time."""
        self._from_checkpoints(lambda scene: ridges(scene, name, title, section), section, "histogram")

    def grids(self, name: str, title: str, section: str) -> None:
        """Add sampled matrices with a slider."""
        self._from_checkpoints(lambda scene: grids(scene, name, title, section), section, FIELD[section])

    def _from_checkpoints(self, drawn: Drawn, section: str, field: str) -> None:
        if not self.add_of_both(drawn):
            self.add_missing(why_none(self.scene, section, field))

    def add_of_both(self, drawn: Drawn, *needed: str) -> bool:
        """Add a chart of the run, and that of the other run beside it; return whether the first run has one.

        Args:
            drawn: Returns the chart of a scene.
            needed: Metrics whose absence is reported.
        """
        first = drawn(self.scene)
        second = drawn(self.scene.other) if self.scene.other else None
        for chart in side_by_side(first, second):
            self.add(chart)
        self.add(None, *needed)
        return first is not None

    def add(self, chart: Chart | None, *needed: str) -> None:
        """Add a chart if there is one, and report which of the needed metrics are missing."""
        if chart is not None:
            self.charts.append(chart)
        for name in needed:
            self.add_missing(why_missing(self.scene.run, name))

    def add_missing(self, sentence: str) -> None:
        """Report that something is missing; an empty sentence is ignored."""
        if sentence and sentence not in self.missing:
            self.missing.append(sentence)


# Why a chart is missing and what would record it, as in `ckaudit coverage`.
def why_missing(run: Run, name: str) -> str:
    """Return a sentence on why a metric cannot be drawn; empty if it can."""
    series = metrics()[name](run)
    if series:
        return "" if series.finite.any() else f"{name} was recorded, but never as a finite number"
    if reason := why_metric_not_applicable(run, name):
        return f"{name} makes no sense here: {reason}"
    entry = entry_of(name)
    if entry is not None and entry in entries() and (reason := unusable(run, entry)):
        return f"{name} could not be computed: {reason}"
    return f"{name} was not recorded{_line(run, name)}"


def _line(run: Run, name: str) -> str:
    owner = owner_of(name)
    if owner is None or owner not in entries():
        return ""
    lacks = missing_inputs(run, owner)
    lines = dict.fromkeys(line.strip() for lack in lacks or (owner,) for line in lines_for_run(run, lack))
    needs = f" (it is made of {', '.join(lacks)})" if lacks and lacks != (name,) else ""
    return f"{needs}; to record it: {'; '.join(lines)}" if lines else needs
