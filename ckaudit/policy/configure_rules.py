"""The rules under a policy: which of them judge, and with which thresholds, by their current names."""

import math
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from ckaudit.contract.schema.report import Check
from ckaudit.contract.violations import ViolationKind
from ckaudit.errors import UsageError
from ckaudit.policy.policy_schema import Policy, PolicyClauses, matches_code, refuse_unknown_word
from ckaudit.rules.rule import Rule

T = TypeVar("T")

WORDS: dict[type, str] = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", tuple: "a list"}

RENAMED_THRESHOLDS = Path(__file__).with_name("renamed_thresholds.toml")


def configured_rules(rules: Iterable[Rule], clauses: PolicyClauses) -> tuple[list[Rule], list[Check]]:
    """Return the rules that judge, with the policy's thresholds, and a skipped check for each other rule."""
    judging: list[Rule] = []
    disabled: list[Check] = []
    for rule in rules:
        if reason := _why_not(rule, clauses):
            disabled.append(
                Check(
                    code=rule.code,
                    name=rule.name,
                    title=rule.title,
                    severity=rule.severity,
                    outcome="skipped",
                    reason="disabled",
                    detail=reason,
                )
            )
        else:
            values = thresholds_of(clauses, rule)
            if clauses.slices is not None and "slices" in rule.thresholds:
                values.setdefault("slices", tuple(clauses.slices))
            judging.append(replace(rule, function=partial(rule.function, **values)) if values else rule)
    return judging, disabled


def _why_not(rule: Rule, clauses: PolicyClauses) -> str:
    if clauses.severities.get(rule.code) == "off":
        return "severity off"
    if clauses.select is not None and not any(matches_code(word, rule.code, rule.name) for word in clauses.select):
        return "not selected"
    return ""


# Checks of a policy against the catalogues: every name is known, and every threshold belongs to its rule.
def check(policy: Policy, rules: Collection[Rule], kinds: Collection[ViolationKind]) -> Policy:
    """Return a policy with only known names; thresholds are keyed by the name of their rule, severities by code.

    Args:
        policy: The policy as read.
        rules: Every rule.
        kinds: Every kind of violation.

    Raises:
        UsageError: If a name is unknown, something is named twice, or a value has another type than its threshold.
    """
    base, *profiles = (_checked(f"{policy.file}: {place}", clauses, rules, kinds) for place, clauses in policy.everywhere())
    return replace(policy, base=base, profiles=dict(zip(policy.profiles, profiles, strict=True)))


def _checked(where: str, clauses: PolicyClauses, rules: Collection[Rule], kinds: Collection[ViolationKind]) -> PolicyClauses:
    of_rules = {word: rule.code for rule in rules for word in (rule.code, rule.name)}
    of_all = {word: kind.code for kind in kinds for word in (kind.code, kind.name)} | of_rules
    for word in clauses.select or ():
        _known(f"{where}select", word, of_rules, "rule")
    for ignore in clauses.ignore:
        _known(f"{where}ignore", ignore.code, of_all, "rule or violation")
    for name, values in clauses.thresholds.items():
        _thresholds(f"{where}thresholds", name, values, rules)
    names = {word: rule.name for rule in rules for word in (rule.code, rule.name)}
    return replace(
        clauses,
        thresholds=_by_one_name(f"{where}thresholds", clauses.thresholds, names, "rule"),
        severities=_by_one_name(f"{where}severities", clauses.severities, of_all, "rule or violation"),
    )


def _known(place: str, word: str, allowed: Mapping[str, str], what: str) -> None:
    if not any(fnmatchcase(name, word) for name in allowed):
        raise refuse_unknown_word(f"{place}: no {what} is called {word!r}", word, allowed)


def _by_one_name(place: str, settings: Mapping[str, T], allowed: Mapping[str, str], what: str) -> dict[str, T]:
    """Return settings keyed by the canonical name of each thing."""
    by_name: dict[str, T] = {}
    for word, value in settings.items():
        if word not in allowed:
            raise refuse_unknown_word(f"{place}: no {what} is called {word!r}", word, allowed)
        if allowed[word] in by_name:
            raise UsageError(f"{place}: {allowed[word]} is set twice, by code and by name", hint="leave one of them out")
        by_name[allowed[word]] = value
    return by_name


def thresholds_of(clauses: PolicyClauses, rule: Rule) -> dict[str, Any]:
    """Return a policy's values for a rule's thresholds, each in the type of its default."""
    values = clauses.thresholds.get(rule.name, {})
    return {key: type(rule.thresholds[key])(value) for key, value in values.items()}


def _thresholds(place: str, name: str, values: Mapping[str, Any], rules: Collection[Rule]) -> None:
    rule = next((rule for rule in rules if name in (rule.code, rule.name)), None)
    if rule is None:
        return  # unknown names are refused together elsewhere
    for key, value in values.items():
        where = f"{place}.{name}.{key}"
        if key not in rule.thresholds:
            raise refuse_unknown_word(f"{where}: {rule.name} has no such threshold", key, rule.thresholds)
        default = rule.thresholds[key]
        if not _fits(value, default):
            raise UsageError(f"{where}: expected {WORDS[type(default)]}, got {value!r}", hint=f"its default is {default!r}")


def _fits(value: Any, default: Any) -> bool:
    match default:
        case bool():
            return isinstance(value, bool)
        case int():
            return isinstance(value, int) and not isinstance(value, bool)
        case float():
            return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        case tuple():
            return isinstance(value, list) and all(_fits(element, default[0]) for element in value if default)
    return isinstance(value, type(default))


# Old names of thresholds: a policy for an earlier version still works, and hints give the new names.
def with_present_names(policy: Policy, rules: Collection[Rule]) -> tuple[Policy, list[str]]:
    """Return a policy with the current names of thresholds, and a hint for each old name.

    A number that is no longer a threshold is left out, and the hint says so. Unknown names are unchanged.

    Raises:
        UsageError: If a threshold is set by both its old and its new name.
    """
    by_word = {word: rule for rule in rules for word in (rule.code, rule.name)}
    hints: list[str] = []
    base, *profiles = (_renamed(f"{policy.file}: {place}", clauses, by_word, hints) for place, clauses in policy.everywhere())
    return replace(policy, base=base, profiles=dict(zip(policy.profiles, profiles, strict=True))), hints


def _renamed(where: str, clauses: PolicyClauses, by_word: Mapping[str, Rule], hints: list[str]) -> PolicyClauses:
    thresholds = {}
    for word, values in clauses.thresholds.items():
        rule = by_word.get(word)
        unknown = rule is not None and values.keys() - rule.thresholds.keys()
        thresholds[word] = _renamed_values(f"{where}thresholds.{word}", values, rule, hints) if rule and unknown else values
    return replace(clauses, thresholds=thresholds)


def _renamed_values(place: str, values: Mapping[str, Any], rule: Rule, hints: list[str]) -> dict[str, Any]:
    import tomllib

    old = tomllib.loads(RENAMED_THRESHOLDS.read_text(encoding="utf-8")).get(rule.name, {})
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = key if key in rule.thresholds else old.get(key, key)
        if name in renamed or (name != key and name in values):
            raise UsageError(f"{place}.{name} is set twice, by its old and its new name", hint=f"leave {key} out")
        if name != key:
            hints.append(
                f"hint: {place}.{key} " + (f"is called {name} now" if name else "is no threshold any more, and left out")
            )
        if name:
            renamed[name] = value
    return renamed
