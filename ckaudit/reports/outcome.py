"""What a report comes to for who has to decide by it: passed, failed, or not judged; as an exit code with the reason."""

from typing import NamedTuple

from ckaudit.contract.schema.report import Report, Severity
from ckaudit.reports.words import broken_checks, failing_severities


class Outcome(NamedTuple):
    """What a report comes to.

    Attributes:
        code: 0 passed, 1 failed, 2 not judged.
        reason: Why it was not judged; else empty.
        is_empty: Whether it was not judged because nothing was there to judge by.
    """

    code: int
    reason: str = ""
    is_empty: bool = False


def outcome(report: Report, *, fail_on: Severity | None = None, require: str | None = None, allow_empty: bool = False) -> Outcome:
    """Return what a report comes to.

    A finding counts before anything that went missing: what is found is found. A check that broke is not a clean one.

    Args:
        report: What was found and judged.
        fail_on: The least grave severity that fails; None: what the report's policy says, else sev1.
        require: vital: a report in which a vital check could not judge does not pass; None: what the report's policy says.
        allow_empty: Whether a report that judged nothing is fine.
    """
    failing = failing_severities(report, fail_on)
    if any(finding.severity in failing for finding in report.findings):
        return Outcome(1)
    if broken := broken_checks(report.checks):
        return Outcome(2, f"{', '.join(check.code for check in broken)} broke: the audit is not complete")
    required = require or (report.policy and report.policy.require)
    if required == "vital" and report.judged in ("limited", "nothing"):
        return Outcome(2, "a vital check could not judge, and --require vital asks for all that apply")
    judged = any(check.outcome in ("passed", "failed") for check in report.checks) and report.judged != "nothing"
    answered = any(answer.word in ("good", "watch", "bad") for phase in report.interview for answer in phase.answers)
    if allow_empty or ((judged or answered) and report.files):
        return Outcome(0)
    return Outcome(2, f"nothing could be judged: {_why_nothing(report)}", is_empty=True)


def _why_nothing(report: Report) -> str:
    if not report.files:
        return "no file was read"
    from ckaudit.audit.vital_checks import limits, nothing_vital  # with all metrics, which few reports need

    return limits(report.vital) if nothing_vital(report) else f"all {len(report.checks)} checks were skipped"
