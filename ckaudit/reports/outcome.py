"""The outcome of a report for a pipeline: passed, failed, or not judged; an exit code with its reason."""

from typing import NamedTuple

from ckaudit.contract.schema.fleet import Fleet
from ckaudit.contract.schema.report import SEVERITIES, Report, Severity
from ckaudit.reports.words import broken_checks, failing_severities


class ExitOutcome(NamedTuple):
    """The outcome of a report.

    Attributes:
        code: 0 passed, 1 failed, 2 not judged.
        reason: Why it was not judged, else empty.
        is_empty: Whether it was not judged because there was nothing to judge.
    """

    code: int
    reason: str = ""
    is_empty: bool = False


def outcome(
    report: Report, *, fail_on: Severity | None = None, require: str | None = None, allow_empty: bool = False
) -> ExitOutcome:
    """Return the outcome of a report.

    Findings take precedence over anything that is missing. A check that broke does not count as clean.

    Args:
        report: The report.
        fail_on: The lowest severity that fails; None: that of the report's policy, else sev1.
        require: vital: a report in which a vital check could not judge does not pass; None: as in the report's policy.
        allow_empty: Whether a report that judged nothing passes.
    """
    failing = failing_severities(report, fail_on)
    if any(finding.severity in failing for finding in report.findings):
        return ExitOutcome(1)
    if broken := broken_checks(report.checks):
        return ExitOutcome(2, f"{', '.join(check.code for check in broken)} broke: the audit is not complete")
    required = require or (report.policy and report.policy.require)
    if required == "vital" and report.judged in ("limited", "nothing"):
        return ExitOutcome(2, "a vital check could not judge, and --require vital asks for all that apply")
    judged = any(check.outcome in ("passed", "failed") for check in report.checks) and report.judged != "nothing"
    answered = any(answer.word in ("good", "watch", "bad") for phase in report.interview for answer in phase.answers)
    if allow_empty or ((judged or answered) and report.files):
        return ExitOutcome(0)
    return ExitOutcome(2, f"nothing could be judged: {_why_nothing(report)}", is_empty=True)


def fleet_outcome(fleet: Fleet, *, fail_on: Severity, require: str | None = None, allow_empty: bool = False) -> ExitOutcome:
    """Return the outcome of a fleet: a finding in any run takes precedence over what is missing in another.

    An unreadable run counts as a sev1 finding, like an unreadable file among others; if there is no other run, nothing was
    audited.

    Args:
        fleet: The runs.
        fail_on: The lowest severity that fails.
        require: vital: a run in which a vital check could not judge does not pass.
        allow_empty: Whether runs in which nothing could be judged pass, and a fleet without runs.
    """
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    is_among_others = fleet.unchanged > 0 or any(run.status == "audited" for run in fleet.runs)
    unreadable = [run for run in fleet.runs if run.status == "unreadable"]
    if any(run.severity in failing for run in fleet.runs) or (unreadable and is_among_others and "sev1" in failing):
        return ExitOutcome(1)
    failed = [run for run in fleet.runs if run.status == "error" or (run.status == "unreadable" and not is_among_others)]
    if failed:
        return ExitOutcome(
            2, f"{failed[0].run} could not be audited" + (f", nor {len(failed) - 1:,} others" if failed[1:] else "")
        )
    if require == "vital" and (open_runs := [run for run in fleet.runs if run.judged != "all"]):
        return ExitOutcome(2, f"a vital check of {open_runs[0].run} could not judge, and --require vital asks for all that apply")
    empty = [run for run in fleet.runs if run.judged == "nothing"]
    if allow_empty or (fleet.runs and not empty):
        return ExitOutcome(0)
    if not fleet.runs:
        return ExitOutcome(0) if fleet.unchanged or fleet.notes else ExitOutcome(2, "no run was found", is_empty=True)
    return ExitOutcome(2, f"nothing vital of {empty[0].run} could be judged", is_empty=True)


def _why_nothing(report: Report) -> str:
    if not report.files:
        return "no file was read"
    if report.resume_checkpoints:
        return "no checkpoint is of a form that is read"
    from ckaudit.audit.vital_checks import is_nothing_vital_judged, limits  # imports all metrics, which few reports need

    return limits(report.vital) if is_nothing_vital_judged(report) else f"all {len(report.checks)} checks were skipped"
