"""Old names of thresholds: a policy that was written for an earlier version holds, and is told the new names."""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ckaudit.errors import UsageError
from ckaudit.policy.policy_schema import Clauses, Policy
from ckaudit.rules.rule import Rule

FILE = Path(__file__).with_name("renamed_thresholds.toml")


def with_present_names(policy: Policy, rules: Collection[Rule]) -> tuple[Policy, list[str]]:
    """Return a policy with the thresholds' names of today, and a hint for each name that was an old one.

    A number that is no threshold any more is left out, and the hint says so. Names that nobody knows stay as they are.

    Raises:
        UsageError: Where one threshold is set by its old and by its new name.
    """
    by_word = {word: rule for rule in rules for word in (rule.code, rule.name)}
    hints: list[str] = []
    base, *profiles = (_renamed(f"{policy.file}: {place}", clauses, by_word, hints) for place, clauses in policy.everywhere())
    return replace(policy, base=base, profiles=dict(zip(policy.profiles, profiles, strict=True))), hints


def _renamed(where: str, clauses: Clauses, by_word: Mapping[str, Rule], hints: list[str]) -> Clauses:
    found = {}
    for word, values in clauses.thresholds.items():
        rule = by_word.get(word)
        unknown = rule is not None and values.keys() - rule.thresholds.keys()
        found[word] = _values(f"{where}thresholds.{word}", values, rule, hints) if rule and unknown else values
    return replace(clauses, thresholds=found)


def _values(place: str, values: Mapping[str, Any], rule: Rule, hints: list[str]) -> dict[str, Any]:
    old = tomllib.loads(FILE.read_text(encoding="utf-8")).get(rule.name, {})
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key if key in rule.thresholds else old.get(key, key)
        if name in found or (name != key and name in values):
            raise UsageError(f"{place}.{name} is set twice, by its old and its new name", hint=f"leave {key} out")
        if name != key:
            hints.append(
                f"hint: {place}.{key} " + (f"is called {name} now" if name else "is no threshold any more, and left out")
            )
        if name:
            found[name] = value
    return found
