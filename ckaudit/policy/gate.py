"""The gate: policy, baseline and siblings together, and what a report says of them."""

from collections.abc import Callable, Iterable
from datetime import date
from typing import TYPE_CHECKING

from msgspec import Struct

from ckaudit.contract.schema.report import Accepted, Check, Finding, PolicyUsed, Report, Sibling
from ckaudit.policy.baseline import Baseline, accepted
from ckaudit.policy.policy_schema import NOTHING, Clauses, Ignore, Policy

if TYPE_CHECKING:
    from ckaudit.run.run import Run


class HeldAgainst(Struct, frozen=True, kw_only=True):
    """What a run's healthy siblings say of it.

    Attributes:
        findings: What leaves the band of their values.
        checks: What became of each quantity that they are a yardstick of.
        why_normal: Says why a finding is as good as theirs, or None where it is not.
        siblings: Every run that was named as one.
        notes: What a reader must know of it.
    """

    findings: tuple[Finding, ...] = ()
    checks: tuple[Check, ...] = ()
    why_normal: Callable[[Finding], str | None] | None = None
    siblings: tuple[Sibling, ...] = ()
    notes: tuple[str, ...] = ()


class Gate(Struct, frozen=True, kw_only=True):
    """What findings are held against before they count.

    Attributes:
        policy: The policy; None: none.
        baseline: What was accepted once; None: nothing.
        today: The day on which ignores are judged.
        yardstick: Holds a run against its healthy siblings; None: there are none.
    """

    policy: Policy | None = None
    baseline: Baseline | None = None
    today: date = date.min
    yardstick: "Callable[[Run], HeldAgainst] | None" = None

    def at(self, scale: str | None = None, stage: str | None = None) -> tuple[Clauses, PolicyUsed | None]:
        """Return what holds for a run, and what the report says of it; the policy's own word on scale and stage comes first."""
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

    def held_against(self, run: "Run") -> HeldAgainst | None:
        """Return what the siblings of a run say of it, once per run; None: there are none."""
        yardstick = self.yardstick
        return None if yardstick is None else run.derived(yardstick, lambda: yardstick(run))


OPEN = Gate()


def changes(clauses: Clauses) -> Iterable[str]:
    """Yield what clauses change, a setting each."""
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


def over(ended: Iterable[Ignore], gate: Gate) -> list[str]:
    """Return a sentence for each ignore that has ended."""
    file = gate.policy.file if gate.policy else ""
    return [
        f"{file}: the ignore of {ignore.code} ended on {ignore.until} and hides nothing any more; it was for: {ignore.reason}"
        for ignore in ended
    ]


def adopted(report: Report, baseline: Baseline) -> list[Accepted]:
    """Return the entries of a baseline that accepts what a report found; what could not be judged this time stays.

    Args:
        report: Made under that baseline, adopting.
        baseline: Its entries so far; their reasons are kept.
    """
    plain = f"accepted in {baseline.file}"
    unjudged = {check.code for check in report.checks if check.outcome not in ("passed", "failed")}
    unchanged = [entry for entry in baseline.entries if entry.code in unjudged]
    taken = [suppressed for suppressed in report.suppressed if suppressed.by == "baseline"]
    return unchanged + [
        accepted(suppressed.finding, report.command, None if suppressed.reason == plain else suppressed.reason)
        for suppressed in taken
    ]
