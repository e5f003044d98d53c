"""What a rule is: a pure function from series to hits, with its needs, its thresholds and its gravest severity."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ckaudit.catalogue import Catalogue, thresholds_of
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity, SkipReason
from ckaudit.contract.summaries import ONE_OF
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.metric import metrics_among
from ckaudit.run.series import Floats, Mask, Series, Steps
from ckaudit.run.spans import Span, spans


class Hit(Struct, frozen=True, kw_only=True):
    """One interval in which a rule's illness is seen.

    `message` may use {where}, {value}, {limit} and the steps, with their formats. `also` are places where the same began
    during the interval, the last of them at step `joined_by`. `badness` ranks places by how bad they are. `members` are the
    hits of all places, where one hit was made of them.
    """

    severity: Severity
    message: str
    where: str | None = None
    first: int | None = None
    last: int | None = None
    worst: int | None = None
    value: float | None = None
    limit: float | None = None
    points: int | None = None
    also: tuple[str, ...] = ()
    joined_by: int | None = None
    badness: float | None = None
    members: tuple["Hit", ...] = ()

    @classmethod
    def over(
        cls,
        span: Span,
        severity: Severity,
        message: str,
        *,
        badness: Floats,
        value: Floats | None = None,
        limit: float | None = None,
    ) -> "Hit":
        """Make a hit of a span.

        Args:
            span: Where and when.
            severity: Its severity.
            message: One sentence for a tired engineer.
            badness: Selects the worst step, shape (T, P).
            value: The value that is shown, shape (T, P); default: the badness itself.
            limit: The limit that was exceeded.
        """
        step, worst = span.worst(badness)
        row = int((span.steps == step).argmax())
        shown = worst if value is None else float(value[span.rows[row], span.column])
        return cls(
            severity=severity,
            message=message,
            where=span.label,
            first=span.first,
            last=span.last,
            worst=step,
            value=shown,
            limit=limit,
            points=span.points,
            badness=worst,
        )

    @classmethod
    def off_usual(cls, span: Span, series: Series, away: Floats, usual: Floats, message: str) -> "Hit":
        """Make a hit of a span in which a series differs from its usual level: its worst point, and the usual value there.

        Args:
            span: The span.
            series: The series.
            away: Distance of each cell from the usual level, shape (T, P).
            usual: The usual level, shape (T, P).
            message: One sentence for a tired engineer.
        """
        step, _ = span.worst(away)
        row = int(np.searchsorted(series.steps, step))
        return cls(
            severity="sev2",
            message=message,
            where=span.label,
            first=span.first,
            last=span.last,
            worst=step,
            value=float(series.values[row, span.column]),
            limit=float(usual[row, span.column]),
            points=span.points,
        )

    @classmethod
    def at(
        cls,
        steps: Steps | Sequence[int],
        severity: Severity,
        message: str,
        *,
        where: str | None = None,
        value: float | None = None,
        limit: float | None = None,
        worst: int | None = None,
    ) -> "Hit":
        """Make a hit of points.

        Args:
            steps: The steps of the points, in order.
            severity: Its severity.
            message: One sentence for a tired engineer.
            where: The tensor, block or number.
            value: The value that is shown.
            limit: The limit that was exceeded.
            worst: Index of the worst point.
        """
        return cls(
            severity=severity,
            message=message,
            where=where,
            first=int(steps[0]),
            last=int(steps[-1]),
            worst=None if worst is None else int(steps[worst]),
            value=value,
            limit=limit,
            points=len(steps),
        )


class Skip(Struct, frozen=True):
    """A rule's statement that it cannot judge this run: the reason, and what is missing."""

    reason: SkipReason
    detail: str


def needs_one_of(*metrics: Metric) -> Skip:
    """Return the skip for a run that records none of these metrics, of which any one would do."""
    return Skip("not_recorded", ONE_OF + ", ".join(metric.name for metric in metrics))


def too_few(series: Series, min_points: int) -> Iterator[Skip]:
    """Yield a skip where a series is too short to judge."""
    if series.points < min_points:
        yield Skip("too_few_points", f"{series.points} points of {series.name}; {min_points} are needed")


def lasting_spans(series: Series, mask: Mask, *, min_points: int = 2, fewest: int = 0, few: int = 6) -> Iterator[Span]:
    """Yield the spans of at least `min_points` points; in a series of few points, also shorter ones that hold its last step.

    Args:
        series: The series to judge.
        mask: Where it is ill, shape (T, P).
        min_points: Minimum number of points of a span.
        fewest: Number of points of a series below which its last step has no such exception.
        few: Number of points of a series from which on it has none either.
    """
    for span in spans(series, mask, min_points=1 if fewest <= series.points < few else min_points):
        if span.points >= min_points or span.last == series.steps[-1]:
            yield span


def true_stretches(mask: Mask, *, min_points: int = 1) -> Iterator[tuple[int, int]]:
    """Yield the first row of each run of at least `min_points` true values, and the first row after it."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).tolist()
    yield from ((start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end - start >= min_points)


def is_written_by_ckaudit(facts: Manifest | None) -> bool:
    """Tell whether ckaudit's recorder or writer wrote the run."""
    return facts is not None and isinstance(facts.source, str) and facts.source.startswith("ckaudit")


class FactsMarker:
    """Placeholder in `needs` or `wants` for the run's manifest."""


FACTS = FactsMarker()
Input = Metric | FactsMarker
RuleFunction = Callable[..., Iterator[Hit | Skip]]


class Rule(Struct, frozen=True, eq=False):
    """One catalogued rule.

    Attributes:
        code: Stable code, family and number.
        name: The illness; the function's and the file's name.
        severity: The gravest a hit may be.
        needs: Inputs without which the rule is skipped.
        wants: Inputs that may be missing.
        unit: Unit of a hit's value and limit.
        memory: How many points of history a verdict depends on; None: all.
        title: The docstring's first sentence.
        doc: The whole docstring.
        function: What judges.
        facts: Facts of the run that it judges by, each with what would do in its place: named where inputs are missing.
    """

    code: str
    name: str
    severity: Severity
    needs: tuple[Input, ...]
    wants: tuple[Input, ...]
    unit: str
    memory: int | None
    title: str
    doc: str
    function: RuleFunction
    facts: tuple[tuple[str, ...], ...] = ()

    @property
    def metrics(self) -> list[Metric]:
        """The metrics among the inputs."""
        return metrics_among((*self.needs, *self.wants))

    @property
    def thresholds(self) -> dict[str, Any]:
        """Keyword-only parameters and their defaults."""
        return thresholds_of(self.function)


_RULES: Catalogue[Rule] = Catalogue("rule", "ckaudit.rules", before_plugins=metrics)


def rule(
    code: str,
    *,
    severity: Severity,
    needs: Sequence[Input],
    wants: Sequence[Input] = (),
    facts: Sequence[Sequence[str]] = (),
    unit: str = "1",
    memory: int | None = None,
) -> Callable[[RuleFunction], Rule]:
    """Enter a function into the catalogue of rules.

    The function takes one positional argument per need (a Series, or the Manifest for FACTS), one per want (the same, or
    None), and its thresholds as keyword-only defaults. `facts` are fields of run.json that it judges by, each
    with what would do in its place; a rule that cannot do without says so itself.
    """

    def enter(function: RuleFunction) -> Rule:
        doc = inspect.cleandoc(function.__doc__ or "")
        title = doc.partition("\n")[0]
        entry = Rule(
            code,
            function.__name__,
            severity,
            tuple(needs),
            tuple(wants),
            unit,
            memory,
            title,
            doc,
            function,
            facts=tuple(map(tuple, facts)),
        )
        return _RULES.add(code, entry)

    return enter


def rules() -> dict[str, Rule]:
    """Return every rule by code, sorted; those of plugins come in after our own."""
    return _RULES.units()
