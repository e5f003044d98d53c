"""The rules as a policy wants them: which of them judge, and with which thresholds."""

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from ckaudit.contract.schema.report import Check
from ckaudit.policy.check import thresholds_of
from ckaudit.policy.policy_schema import Clauses, means
from ckaudit.rules.rule import Rule


def tailored(rules: Iterable[Rule], clauses: Clauses) -> tuple[list[Rule], list[Check]]:
    """Return the rules that judge, with the policy's thresholds, and a skipped check for each of the others."""
    judging: list[Rule] = []
    disabled: list[Check] = []
    for rule in rules:
        if reason := _why_not(rule, clauses):
            disabled.append(_disabled(rule, reason))
        else:
            judging.append(_with_thresholds(rule, clauses))
    return judging, disabled


def _why_not(rule: Rule, clauses: Clauses) -> str:
    if clauses.severities.get(rule.code) == "off":
        return "severity off"
    if clauses.select is not None and not any(means(word, rule.code, rule.name) for word in clauses.select):
        return "not selected"
    return ""


def _disabled(rule: Rule, reason: str) -> Check:
    return Check(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        severity=rule.severity,
        outcome="skipped",
        reason="disabled",
        detail=reason,
    )


def _with_thresholds(rule: Rule, clauses: Clauses) -> Rule:
    values = thresholds_of(clauses, rule)
    if clauses.slices is not None and "slices" in rule.thresholds:
        values.setdefault("slices", tuple(clauses.slices))
    return replace(rule, function=partial(rule.function, **values)) if values else rule
