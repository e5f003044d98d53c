"""Acceptance criteria: policy, baseline and siblings together, and their summary for a report."""

from collections.abc import Callable, Iterable
from datetime import date
from typing import TYPE_CHECKING

from msgspec import Struct

from ckaudit.contract.schema.report import Accepted, Check, Finding, PolicyUsed, Report, Sibling
from ckaudit.policy.baseline import Baseline, accepted
from ckaudit.policy.policy_schema import NOTHING, Ignore, Policy, PolicyClauses

if TYPE_CHECKING:
    from ckaudit.run.run import Run


class SiblingComparison(Struct, frozen=True, kw_only=True):
    """The comparison of a run with its healthy siblings.

    Attributes:
        findings: Findings on values outside the siblings' range.
        checks: Outcome for each compared quantity.
        why_normal: Returns why a finding is normal among siblings, or None if it is not.
        siblings: Every run that was named as a sibling.
        notes: Notes on the comparison.
    """

    findings: tuple[Finding, ...] = ()
    checks: tuple[Check, ...] = ()
    why_normal: Callable[[Finding], str | None] | None = None
    siblings: tuple[Sibling, ...] = ()
    notes: tuple[str, ...] = ()


class AcceptanceCriteria(Struct, frozen=True, kw_only=True):
    """The criteria for findings that count: policy, baseline and healthy siblings.

    Attributes:
        policy: The policy, if any.
        baseline: The accepted findings, if any.
        today: The day for which ignores are evaluated.
        sibling_comparison: Compares a run with its healthy siblings; None if there are none.
    """

    policy: Policy | None = None
    baseline: Baseline | None = None
    today: date = date.min
    sibling_comparison: "Callable[[Run], SiblingComparison] | None" = None

    def at(self, scale: str | None = None, stage: str | None = None) -> tuple[PolicyClauses, PolicyUsed | None]:
        """Return the clauses for a run, and their summary for the report; the policy's own scale and stage come first."""
        if self.policy is None:
            return NOTHING, None
        scale, stage = self.policy.scale or scale, self.policy.stage or stage
        clauses, profiles = self.policy.at(scale, stage)
        return clauses, PolicyUsed(
            file=self.policy.file,
            scale=scale,
            stage=stage,
            profiles=profiles,
            changes=list(changes(clauses)),
            fail_on=clauses.fail_on,
            require=clauses.require,
        )

    def compare_with_siblings(self, run: "Run") -> SiblingComparison | None:
        """Return the comparison of a run with its siblings, computed once per run; None if it has none."""
        sibling_comparison = self.sibling_comparison
        return None if sibling_comparison is None else run.derived(sibling_comparison, lambda: sibling_comparison(run))


OPEN = AcceptanceCriteria()


def changes(clauses: PolicyClauses) -> Iterable[str]:
    """Yield the settings that clauses change."""
    if clauses.select is not None:
        yield f"select {', '.join(clauses.select)}"
    for rule, values in clauses.thresholds.items():
        yield from (f"{rule}.{name} = {value}" for name, value in values.items())
    yield from (f"{name} {grade}" for name, grade in clauses.severities.items())
    if clauses.ignore:
        yield f"ignore {', '.join(dict.fromkeys(ignore.code for ignore in clauses.ignore))}"
    if clauses.slices:
        yield f"slices {', '.join(clauses.slices)}"
    if clauses.tau_slices:
        yield f"tau of {clauses.tau_slices[1]} over {clauses.tau_slices[0]}"
    if clauses.fail_on:
        yield f"fail on {clauses.fail_on}"
    if clauses.require:
        yield f"require {clauses.require}"


def ended_ignores(ended: Iterable[Ignore], criteria: AcceptanceCriteria) -> list[str]:
    """Return a sentence for each ignore that has expired."""
    file = criteria.policy.file if criteria.policy else ""
    return [
        f"{file}: the ignore of {ignore.code} ended on {ignore.until} and hides nothing any more; it was for: {ignore.reason}"
        for ignore in ended
    ]


def adopted_findings(report: Report, baseline: Baseline) -> list[Accepted]:
    """Return the entries of a baseline that accepts a report's findings; entries that could not be judged this time stay.

    Args:
        report: Report made under that baseline in adopting mode.
        baseline: The baseline with its entries so far; their reasons are kept.
    """
    plain = f"accepted in {baseline.file}"
    unjudged = {check.code for check in report.checks if check.outcome not in ("passed", "failed")}
    unchanged = [entry for entry in baseline.entries if entry.code in unjudged]
    taken = [suppressed for suppressed in report.suppressed if suppressed.by == "baseline"]
    return unchanged + [
        accepted(suppressed.finding, report.command, None if suppressed.reason == plain else suppressed.reason)
        for suppressed in taken
    ]
