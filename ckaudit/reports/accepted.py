"""What a report leaves out because somebody accepted it, and under which policy it was made: the same in every format."""

from collections.abc import Iterator

from ckaudit.contract.schema.report import Report, Suppressed
from ckaudit.reports import words


def sentences(report: Report, *, limit: int = 5) -> list[str]:
    """Return the policy in force, how many findings do not count and why, and which entries of the baseline are stale.

    Args:
        report: What is to be drawn.
        limit: Of stale entries so many are named; the others are only counted.
    """
    return [*_policy(report), *_counts(report), *_stale(report, limit)]


def of_code(report: Report, code: str) -> list[Suppressed]:
    """Return what is left out of one rule's or violation's findings."""
    return [suppressed for suppressed in report.suppressed if suppressed.finding.code == code]


def why(suppressed: Suppressed) -> str:
    """Return the reason for leaving a finding out, with its last day where there is one."""
    return suppressed.reason + (f" (until {suppressed.until})" if suppressed.until else "")


def _policy(report: Report) -> Iterator[str]:
    policy = report.policy
    if policy is None:
        return
    profiles = f" (profile {' and '.join(policy.profiles)})" if policy.profiles else ""
    yield f"policy {policy.file}{profiles}: {'; '.join(policy.changes) or 'nothing changed'}"


def _counts(report: Report) -> Iterator[str]:
    if not report.suppressed:
        return
    ignored = sum(suppressed.by == "policy" for suppressed in report.suppressed)
    known = len(report.suppressed) - ignored
    parts = [f"{known:,} accepted in {report.baseline}"] if known else []
    if ignored:
        parts.append(f"{ignored:,} ignored by {report.policy.file if report.policy else 'the policy'}")
    total = len(report.suppressed)
    yield f"{words.plural(total, 'finding')} {'does' if total == 1 else 'do'} not count: {', '.join(parts)}"


def _stale(report: Report, limit: int) -> Iterator[str]:
    if not report.stale:
        return
    count = len(report.stale)
    named = [
        " ".join(part for part in (accepted.code, accepted.file, accepted.where) if part) for accepted in report.stale[:limit]
    ]
    listed = ", ".join(dict.fromkeys(named)) + (f" and {count - limit:,} more" if count > limit else "")
    one = count == 1
    yield (
        f"{count:,} {'entry' if one else 'entries'} of {report.baseline} {'matches' if one else 'match'} nothing any more: "
        f"{listed}; --update-baseline drops {'it' if one else 'them'}"
    )
