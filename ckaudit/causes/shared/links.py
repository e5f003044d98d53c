"""What hangs together: which rules read a metric, and which causes explain a rule. Derived, never written by hand."""

from collections.abc import Iterable, Iterator

from ckaudit.causes import causes
from ckaudit.causes.cause import Cause
from ckaudit.metrics import Metric, metrics
from ckaudit.rules import Rule, rules
from ckaudit.rules.rule import Input


def rules_reading(names: Iterable[str]) -> list[Rule]:
    """Return the rules that read one of these metrics, also by way of a metric made of it."""
    wanted = set(names)
    return [rule for rule in rules().values() if wanted & made_of(rule.metrics)]


def causes_reading(names: Iterable[str]) -> list[Cause]:
    """Return the causes that weigh one of these metrics, also by way of a metric made of it."""
    wanted = set(names)
    return [cause for cause in causes().values() if wanted & made_of(_metrics(cause.wants))]


def causes_of(rule: Rule) -> list[Cause]:
    """Return the causes that can account for a rule's finding."""
    return [cause for cause in causes().values() if rule.code in {each.code for each in cause.explains}]


def made_of(given: Iterable[Metric]) -> set[str]:
    """Return the names of metrics, and of all that they are made of."""
    found: set[str] = set()
    left = [metric.name for metric in given]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += metrics()[name].uses
    return found


def metric_names(inputs: Iterable[Input]) -> tuple[str, ...]:
    """Return the names of the metrics among inputs, and "run.json" for the facts of the run."""
    return tuple(input_.name if isinstance(input_, Metric) else "run.json" for input_ in inputs)


def _metrics(inputs: Iterable[Input]) -> Iterator[Metric]:
    return (input_ for input_ in inputs if isinstance(input_, Metric))
