"""Links between metrics, rules and causes, derived from their declarations: who reads a metric, who explains a rule."""

from collections.abc import Iterable
from functools import lru_cache

from ckaudit.causes import causes
from ckaudit.causes.cause import Cause
from ckaudit.metrics import Metric, metrics
from ckaudit.rules import Rule, rules
from ckaudit.rules.rule import Input


def rules_reading(names: Iterable[str]) -> list[Rule]:
    """Return the rules that read one of these metrics, also by way of a metric made of it."""
    wanted = set(names)
    return [rule for rule in rules().values() if wanted & _read_by(rule)]


def causes_reading(names: Iterable[str]) -> list[Cause]:
    """Return the causes that weigh one of these metrics, also by way of a metric made of it."""
    wanted = set(names)
    return [cause for cause in causes().values() if wanted & _read_by(cause)]


@lru_cache(maxsize=1024)
def _read_by(unit: Rule | Cause) -> frozenset[str]:
    inputs = (*unit.needs, *unit.wants) if isinstance(unit, Rule) else unit.wants
    return frozenset(with_their_inputs(input_ for input_ in inputs if isinstance(input_, Metric)))


def causes_of(rule: Rule) -> list[Cause]:
    """Return the causes that can account for a rule's finding."""
    return [cause for cause in causes().values() if rule.code in {sign.code for sign in cause.explains}]


def with_their_inputs(given: Iterable[Metric]) -> set[str]:
    """Return the names of metrics and of all metrics that they are computed from."""
    names: set[str] = set()
    to_visit = [metric.name for metric in given]
    while to_visit:
        name = to_visit.pop()
        if name not in names:
            names.add(name)
            to_visit += metrics()[name].uses
    return names


def metric_names(inputs: Iterable[Input]) -> tuple[str, ...]:
    """Return the names of the metrics among inputs, and "run.json" for the facts of the run."""
    return tuple(input_.name if isinstance(input_, Metric) else "run.json" for input_ in inputs)
