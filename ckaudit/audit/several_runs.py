"""Files with several runs, such as folds, seeds or restarts: the most severe one is reported, the others are named."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ckaudit.contract.schema.report import SEVERITIES, Report
from ckaudit.errors import UsageError
from ckaudit.run.run import Run
from ckaudit.wording import first_names

JUDGED = (None, "nothing", "limited", "all")


def gravest_of_runs(runs: Iterable[tuple[str, Run]], judge: Callable[[Run], Report]) -> Report:
    """Return the report of the most severe run; of equally severe ones the one with most judged, then the later one.

    Args:
        runs: Each run with its name; a single run has an empty name.
        judge: Returns the report of a run.

    Raises:
        UsageError: If no run can be judged as requested, for example at a step before all of them.
    """
    reports: dict[str, Report] = {}
    refused: UsageError | None = None
    for name, run in runs:
        try:
            reports[name] = judge(run)
        except UsageError as error:
            refused = error
    if not reports and refused is not None:
        raise refused
    ranked = sorted(reports, key=lambda name: _gravity(reports[name]))
    report = reports[ranked[-1]]
    if len(reports) == 1:
        return report
    which = f"{ranked[-1]}, of {len(reports)} runs"
    verdict = f"{which} the gravest: {report.verdict}" if report.is_ill else f"{which} of which none is ill: {report.verdict}"
    return replace(report, verdict=verdict, notes=[_others(reports), *report.notes])


def _gravity(report: Report) -> tuple[int, int]:
    """Sort key: a more severe report comes later, then one with more judged."""
    severity = 0 if report.severity is None else len(SEVERITIES) - SEVERITIES.index(report.severity)
    return severity, JUDGED.index(report.judged)


def _others(reports: dict[str, Report]) -> str:
    """Return a sentence on the state of each run."""
    kinds: dict[str, list[str]] = {}
    for name, report in reports.items():
        kind = (
            str(report.severity) if report.is_ill else "nothing could be judged" if report.judged == "nothing" else "no illness"
        )
        kinds.setdefault(kind, []).append(name)
    said = "; ".join(f"{kind}: {first_names(names, 6)}" for kind, names in sorted(kinds.items(), reverse=True))
    return (
        f"the file holds {len(reports)} runs, and all were judged: {said}; --run NAME shows one, `ckaudit fleet` all in a table"
    )
