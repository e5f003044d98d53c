"""A policy held against the catalogues: every name in it means something, every threshold is one of its rule's own."""

import math
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ckaudit.contract.violations import Kind
from ckaudit.errors import UsageError
from ckaudit.policy.clauses import Clauses, Policy
from ckaudit.policy.names import setting
from ckaudit.policy.nearest import refuse
from ckaudit.rules.rule import Rule

WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", tuple: "a list"}


def check(policy: Policy, rules: Collection[Rule], kinds: Iterable[Kind]) -> Policy:
    """Return a policy whose names are all known.

    Args:
        policy: The policy as it was read.
        rules: Every rule.
        kinds: Every kind of violation.

    Raises:
        UsageError: Where a name means nothing, or a value is not of its threshold's type.
    """
    of_rules = {word for rule in rules for word in (rule.code, rule.name)}
    of_all = of_rules | {word for kind in kinds for word in (kind.code, kind.name)}
    for place, clauses in policy.everywhere():
        where = f"{policy.file}: {place}"
        _names(f"{where}select", clauses.select or [], of_rules, "rule")
        _names(f"{where}ignore", [each.code for each in clauses.ignore], of_all, "rule or violation")
        _names(f"{where}severities", clauses.severities, of_all, "rule or violation", patterns=False)
        for name, values in clauses.thresholds.items():
            _thresholds(f"{where}thresholds", name, values, rules)
    return policy


def thresholds_of(clauses: Clauses, rule: Rule) -> dict[str, Any]:
    """Return the values a policy sets for a rule's thresholds, each in the type of its default."""
    values = setting(clauses.thresholds, rule.code, rule.name) or {}
    return {key: _typed(value, rule.thresholds[key]) for key, value in values.items()}


def _names(place: str, words: Iterable[str], known: Collection[str], what: str, *, patterns: bool = True) -> None:
    for word in words:
        if word not in known and not (patterns and any(fnmatchcase(each, word) for each in known)):
            raise refuse(f"{place}: no {what} is called {word!r}", word, known)


def _thresholds(place: str, name: str, values: Mapping[str, Any], rules: Collection[Rule]) -> None:
    rule = next((each for each in rules if name in (each.code, each.name)), None)
    if rule is None:
        raise refuse(f"{place}: no rule is called {name!r}", name, {word for each in rules for word in (each.name, each.code)})
    for key, value in values.items():
        where = f"{place}.{name}.{key}"
        if key not in rule.thresholds:
            raise refuse(f"{where}: {rule.name} has no such threshold", key, rule.thresholds)
        default = rule.thresholds[key]
        if not _fits(value, default):
            kind = next(text for type_, text in WORDS.items() if isinstance(default, type_) and not _is_bool(default, type_))
            raise UsageError(f"{where}: expected {kind}, got {value!r}", hint=f"its default is {default!r}")


def _is_bool(default: Any, kind: type) -> bool:
    """Tell whether Python only calls it a number: a bool is an int."""
    return isinstance(default, bool) and kind is int


def _fits(value: Any, default: Any) -> bool:
    match default:
        case bool():
            return isinstance(value, bool)
        case int():
            return isinstance(value, int) and not isinstance(value, bool)
        case float():
            return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        case tuple():
            return isinstance(value, list) and all(_fits(each, default[0]) for each in value if default)
    return isinstance(value, type(default))


def _typed(value: Any, default: Any) -> Any:
    return type(default)(value)
