"""Which findings count: first the policy's severities, then its ignores, the baseline, and what is normal among siblings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.report import SEVERITIES, Accepted, Check, Finding, Severity, Suppressed
from ckaudit.policy.baseline import Baseline, is_graver
from ckaudit.policy.policy_schema import NOTHING, Ignore, PolicyClauses, matches_code, with_open_ignores


class AppliedPolicy(Struct, frozen=True):
    """Findings after the policy: those that count, and those that are accepted.

    Attributes:
        findings: Those that count, in their original order.
        suppressed: Those that do not count.
        checks: Every check, with only the remaining findings counted.
        stale: Entries of the baseline without a matching finding.
        ended: Ignores that have expired.
    """

    findings: list[Finding]
    suppressed: list[Suppressed]
    checks: list[Check]
    stale: list[Accepted]
    ended: list[Ignore]


def apply_policy(
    findings: Sequence[Finding],
    checks: Sequence[Check],
    *,
    today: date,
    clauses: PolicyClauses = NOTHING,
    baseline: Baseline | None = None,
    notes_fail: bool = False,
    why_normal: Callable[[Finding], str | None] | None = None,
) -> AppliedPolicy:
    """Sort findings into those that count and those that are accepted.

    Args:
        findings: All findings.
        checks: Outcome of each rule or kind of violation.
        today: The day for which ignores are evaluated.
        clauses: The policy's clauses for this run.
        baseline: The accepted findings.
        notes_fail: Whether a note alone makes a check fail, as it does for violations.
        why_normal: Returns why a finding is normal among healthy siblings; None if there are none.
    """
    clauses, ended = with_open_ignores(clauses, today)
    tops = {check.code: check.severity for check in checks}
    switched_on = [finding for finding in findings if clauses.severities.get(finding.code) != "off"]
    graded = [_graded(finding, tops.get(finding.code), clauses) for finding in switched_on]
    ignores = [_ignore_of(finding, clauses.ignore) for finding in graded]
    matched = baseline.matched(graded) if baseline else {}
    counted: list[Finding] = []
    suppressed: list[Suppressed] = []
    for index, (finding, ignore) in enumerate(zip(graded, ignores, strict=True)):
        accepted = (
            _by_policy(finding, ignore)
            or _by_baseline(finding, matched.get(index), baseline)
            or _by_siblings(finding, why_normal)
        )
        if accepted:
            suppressed.append(accepted)
        else:
            counted.append(finding)
    left = [_recounted(check, counted, suppressed, clauses, notes_fail=notes_fail) for check in checks]
    return AppliedPolicy(counted, suppressed, left, list(_stale(baseline, graded, checks)), ended)


def regrade(severity: Severity, top: Severity, wanted: Severity) -> Severity:
    """Return a severity under a policy: the highest severity of a rule becomes the wanted one, and none exceeds that.

    >>> regrade("sev1", "sev1", "sev0"), regrade("note", "sev1", "sev0"), regrade("sev1", "sev1", "sev2")
    ('sev0', 'note', 'sev2')
    """
    return wanted if severity == top or SEVERITIES.index(severity) < SEVERITIES.index(wanted) else severity


def _graded(finding: Finding, top: Severity | None, clauses: PolicyClauses) -> Finding:
    wanted = clauses.severities.get(finding.code)
    if wanted is None or wanted == "off":
        return finding
    return replace(finding, severity=regrade(finding.severity, top or finding.severity, wanted))


def _ignore_of(finding: Finding, ignores: Iterable[Ignore]) -> Ignore | None:
    """Return the first ignore that matches a finding and every place in it."""
    return next(
        (
            ignore
            for ignore in ignores
            if matches_code(ignore.code, finding.code, finding.name) and _covers(ignore.where, finding)
        ),
        None,
    )


def _covers(pattern: str, finding: Finding) -> bool:
    places = [place for place in (finding.where, *finding.also) if place] or [finding.file or ""]
    everywhere = all(fnmatchcase(place, pattern) for place in places)
    return everywhere or (finding.file is not None and fnmatchcase(finding.file, pattern))


def _by_policy(finding: Finding, ignore: Ignore | None) -> Suppressed | None:
    if ignore is None:
        return None
    until = None if ignore.until is None else ignore.until.isoformat()
    return Suppressed(finding=finding, by="policy", reason=ignore.reason, until=until)


def _by_baseline(finding: Finding, entry: Accepted | None, baseline: Baseline | None) -> Suppressed | None:
    """Return what the baseline accepts; a finding that is now more severe is not accepted, unless all are adopted."""
    if baseline is None or not (baseline.adopts or (entry and not is_graver(finding, entry))):
        return None
    reason = entry.reason if entry and entry.reason else f"accepted in {baseline.file}"
    return Suppressed(finding=finding, by="baseline", reason=reason)


def _by_siblings(finding: Finding, why_normal: Callable[[Finding], str | None] | None) -> Suppressed | None:
    reason = None if why_normal is None else why_normal(finding)
    return None if reason is None else Suppressed(finding=finding, by="siblings", reason=reason)


def _recounted(
    check: Check, counted: Iterable[Finding], suppressed: Iterable[Suppressed], clauses: PolicyClauses, *, notes_fail: bool
) -> Check:
    grade = clauses.severities.get(check.code)
    if grade == "off":
        return replace(check, outcome="skipped", reason="disabled", detail="severity off", findings=0)
    severity = check.severity if grade is None else grade
    of_check = [finding for finding in counted if finding.code == check.code]
    hidden = sum(entry.finding.code == check.code for entry in suppressed)
    check = replace(check, severity=severity, findings=len(of_check), suppressed=hidden)
    if check.outcome not in ("passed", "failed"):
        return check
    failed = any(notes_fail or finding.severity != "note" for finding in of_check)
    return replace(check, outcome="failed" if failed else "passed")


def _stale(baseline: Baseline | None, findings: Sequence[Finding], checks: Iterable[Check]) -> Iterator[Accepted]:
    """Yield the entries without any finding, only for checks that could judge: others may still have one."""
    judged: Mapping[str, bool] = {check.code: check.outcome in ("passed", "failed") for check in checks}
    for entry in baseline.gone(findings) if baseline and not baseline.adopts else ():
        if judged.get(entry.code, True):
            yield entry
