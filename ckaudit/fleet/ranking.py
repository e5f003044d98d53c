"""Which run to look at first: the gravest, of these what is surest and lasts longest, of these what was written last."""

from collections.abc import Iterable

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.contract.schema.report import SEVERITIES, Severity

Place = tuple[int, float, float, float, str]


def ranked(runs: Iterable[FleetRun]) -> list[FleetRun]:
    """Return runs, the most urgent first; one that could not be audited stands behind what is ill and before what is well."""
    return sorted(runs, key=place)


def place(run: FleetRun) -> Place:
    """Return by what a run is ranked."""
    sure = run.confidence if is_ill(run) and run.confidence is not None else 0.0
    return _rank(run), -sure, -lasting(run), -float(run.written), run.run


def _rank(run: FleetRun) -> int:
    """Return a place: what is ill, then what was not audited, what has notes, what was not judged in full, what is well."""
    if run.status != "audited":
        return SEVERITIES.index("note")
    if run.severity is not None:
        return SEVERITIES.index(run.severity) + (run.severity == "note")
    return len(SEVERITIES) + (2 if run.judged == "all" else 1)


def is_ill(run: FleetRun) -> bool:
    """Tell whether a run was audited and has a finding that is more than a note."""
    return run.status == "audited" and run.severity not in (None, "note")


def lasting(run: FleetRun) -> float:
    """Return which share of its record the gravest finding of a run takes, 0 where that is not known."""
    gravest = next(iter(run.findings), None)
    if gravest is None or gravest.first_step is None or not run.last_step:
        return 0.0
    end = run.last_step if gravest.last_step is None else gravest.last_step
    return (end - gravest.first_step) / run.last_step


def severity_of(runs: Iterable[FleetRun]) -> Severity | None:
    """Return the gravest finding of any run; None: there is none."""
    found = {run.severity for run in runs}
    return next((severity for severity in SEVERITIES if severity in found), None)
