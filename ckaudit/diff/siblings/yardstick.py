"""Siblings from end to end: they are opened and audited, and a run is compared with those that count."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial, reduce
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.engine import clauses_of, judge_run, open_judged, triage_reads, with_slices
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Check, Finding, Outcome, Sibling, gravest
from ckaudit.contract.violations import ViolationKind
from ckaudit.diff.align import CommonAxis
from ckaudit.diff.run_pair import RunPair, RunSide
from ckaudit.diff.siblings.bands import Band, SiblingRun, all_bands, band_departures, findings_of
from ckaudit.diff.siblings.comparable import grave_illness, is_of_one_machine, unlike_settings
from ckaudit.diff.siblings.kinds import KINDS, RATE
from ckaudit.diff.siblings.quantities import LOSSES
from ckaudit.diff.siblings.shared_findings import SiblingFindings, why_normal
from ckaudit.errors import CkauditError
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.policy.acceptance import AcceptanceCriteria, SiblingComparison
from ckaudit.policy.apply_policy import AppliedPolicy
from ckaudit.rules.rule import true_stretches
from ckaudit.run.read import Progress
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Steps
from ckaudit.wording import first_names, plural

MAX_NAMED = 3
"""siblings named per reason in a note"""


class OpenedSibling(Struct, frozen=True, eq=False):
    """A run named as a sibling, after reading.

    Attributes:
        name: Name that the user gave.
        run: The run; None: it could not be read.
        error: The reason.
        path: Path of the run; None: it was in memory.
    """

    name: str
    run: Run | None = None
    error: str = ""
    path: Path | None = None


class JudgedSibling(Struct, frozen=True, eq=False):
    """A sibling with the results about it.

    Attributes:
        reported: Entry in the report.
        run: The sibling, cut off at the last step of the run; None: it does not count.
        findings: Results of its audit; None: it does not count.
    """

    reported: Sibling
    run: SiblingRun | None = None
    findings: SiblingFindings | None = None


def open_siblings(
    subjects: Sequence[Path | Run], *, import_options: ImportOptions = NO_IMPORT_OPTIONS, progress: Progress | None = None
) -> list[OpenedSibling]:
    """Read runs named as siblings; a run that cannot be read keeps its error, without stopping the others."""
    opened = []
    for subject in subjects:
        if isinstance(subject, Run):
            opened.append(OpenedSibling(subject.name, subject))
            continue
        try:
            run = open_judged(subject, reads=triage_reads(), import_options=import_options, progress=progress)
            opened.append(OpenedSibling(str(subject), run, path=subject))
        except CkauditError as error:
            opened.append(OpenedSibling(str(subject), error=str(error), path=subject))
    return opened


def with_siblings(
    criteria: AcceptanceCriteria, siblings: Sequence[OpenedSibling], *, notes: Sequence[str] = ()
) -> AcceptanceCriteria:
    """Return criteria that also compare a run with its siblings.

    Args:
        criteria: Policy and baseline. The siblings are judged by the same policy, without the baseline.
        siblings: The siblings.
        notes: Notes for the reader on how they were found.
    """
    alone = AcceptanceCriteria(policy=criteria.policy, today=criteria.today)

    @lru_cache(maxsize=len(siblings))  # audited once per sibling and step, even for many runs of equal length
    def audited(number: int, until: int | None) -> tuple[Run, AppliedPolicy]:
        return _audited(siblings[number], until, alone)

    def compare(run: Run) -> SiblingComparison:
        others = [(number, sibling) for number, sibling in enumerate(siblings) if not _is_same(sibling, run)]
        judged = [_judged(sibling, run, partial(audited, number)) for number, sibling in others]
        sibling_runs = [sibling.run for sibling in judged if sibling.run is not None]
        sibling_findings = [sibling.findings for sibling in judged if sibling.findings is not None]
        bands = all_bands(run, sibling_runs)
        comparison = compare_with_siblings(run, sibling_runs, bands) if sibling_runs else SiblingComparison()
        losses = [band for band in bands if band.quantity in LOSSES]
        return replace(
            comparison,
            why_normal=(lambda finding: why_normal(finding, sibling_findings, losses, last_step=run.last_step))
            if sibling_findings
            else None,
            siblings=tuple(sibling.reported for sibling in judged),
            notes=(*_notes([sibling.reported for sibling in judged]), *notes),
        )

    return replace(criteria, sibling_comparison=compare)


def _judged(sibling: OpenedSibling, run: Run, audited: Callable[[int | None], tuple[Run, AppliedPolicy]]) -> JudgedSibling:
    """Return whether a sibling counts for a run, in its state at the last step of the run."""
    if sibling.run is None:
        return JudgedSibling(Sibling(run=sibling.name, counts=False, why_not=f"not to be read: {sibling.error}"))
    axes = RunPair(RunSide(sibling.run), RunSide(run)).fair.axes
    until = _until(axes, run)
    if differing := unlike_settings(sibling.run, run):
        why = "another configuration: " + "; ".join(differing[:MAX_NAMED])
        return JudgedSibling(Sibling(run=sibling.name, counts=False, why_not=why, last_step=_known(sibling.run, until).last_step))
    known, applied = audited(until)
    findings = [*applied.findings, *(suppressed.finding for suppressed in applied.suppressed)]
    ill = grave_illness(applied.findings)
    reported = Sibling(
        run=sibling.name,
        counts=ill is None,
        why_not=None if ill is None else f"ill itself: {ill}",
        severity=gravest(finding.severity for finding in applied.findings),
        last_step=known.last_step,
    )
    if ill is not None:
        return JudgedSibling(reported)
    sibling_run = SiblingRun(known, axes, is_of_one_machine=is_of_one_machine(sibling.run, run))
    return JudgedSibling(reported, sibling_run, SiblingFindings(findings, applied.checks))


def _is_same(sibling: OpenedSibling, run: Run) -> bool:
    """Tell whether a sibling is the judged run itself, which a pattern of many runs may match too."""
    return sibling.run is run or (sibling.path is not None and os.path.realpath(run.name) == os.path.realpath(sibling.path))


def _audited(sibling: OpenedSibling, until: int | None, criteria: AcceptanceCriteria) -> tuple[Run, AppliedPolicy]:
    """Return a sibling in its state at a step, with the results of its audit."""
    if sibling.run is None:
        raise ValueError("what could not be read is not audited")
    known = _known(sibling.run, until)
    clauses, _ = clauses_of(known, criteria)
    return known, judge_run(with_slices(known, clauses), clauses, criteria)


def _known(run: Run, until: int | None) -> Run:
    return run if until is None else run.until(until)


def _until(axes: CommonAxis, run: Run) -> int | None:
    """Return the step of a sibling that corresponds to the last one of a run; None if it ended earlier, or the run has none."""
    if run.last_step is None:
        return None
    until = int(axes.matching_steps(np.array([run.last_step]))[0])
    return until if until >= 0 else None


def compare_with_siblings(run: Run, siblings: Sequence[SiblingRun], bands: Sequence[Band]) -> SiblingComparison:
    """Return where a run leaves the band of the siblings that count, and the outcome of each quantity."""
    tests = sum(len(band.stretches.first) for band in bands if not band.quantity.of_clock)
    left = list(band_departures(bands, tests=tests))
    findings = [*findings_of(left, run), *map(rate_finding, rate_departures(run, siblings))]
    judged = {band.quantity.kind.code for band in bands}
    if learning_rate(run) and any(learning_rate(sibling.run) for sibling in siblings):
        judged.add(RATE.code)
    return SiblingComparison(findings=tuple(findings), checks=tuple(_check(kind, judged, findings) for kind in KINDS))


def _check(kind: ViolationKind, judged: Collection[str], findings: Sequence[Finding]) -> Check:
    own = [finding for finding in findings if finding.code == kind.code]
    failed = any(finding.severity != "note" for finding in own)
    outcome: Outcome = "skipped" if kind.code not in judged else "failed" if failed else "passed"
    return Check(
        code=kind.code,
        name=kind.name,
        title=kind.title,
        severity=kind.severity,
        outcome=outcome,
        reason="not_recorded" if outcome == "skipped" else None,
        detail="the run and its siblings have no points of it in common" if outcome == "skipped" else None,
        findings=len(own),
    )


def _notes(siblings: Sequence[Sibling]) -> Iterator[str]:
    """Yield which siblings count, and which do not, by reason."""
    counting = [sibling.run for sibling in siblings if sibling.counts]
    reasons: dict[str, list[str]] = {}
    for sibling in siblings:
        if sibling.why_not is not None:
            reasons.setdefault(sibling.why_not, []).append(sibling.run)
    excluded = [f"{first_names(names, MAX_NAMED)} ({reason})" for reason, names in reasons.items()]
    if counting:
        yield f"held against {plural(len(counting), 'healthy sibling')}: {first_names(counting, MAX_NAMED)}"
        yield from (f"left out of the siblings: {sibling}" for sibling in excluded)
    else:
        yield f"none of the siblings is a yardstick: {'; '.join(excluded)}"


# Learning rates that leave the schedule that all siblings share.
class RateDeparture(Struct, frozen=True, kw_only=True):
    """A learning rate that differs from that of all siblings.

    Attributes:
        label: Label of the rate.
        first: First step of the difference.
        last: Last step of the difference.
        own: The run's rate then.
        theirs: Rate of the siblings.
        siblings: Number of siblings.
        may_follow_loss: Whether the rate was lowered in one step, as by a schedule that waits for the loss to stall.
    """

    label: str
    first: int
    last: int
    own: float
    theirs: float
    siblings: int
    may_follow_loss: bool


def rate_departures(
    run: Run, siblings: Sequence[SiblingRun], *, alike: float = 1e-3, min_departure: float = 0.01
) -> Iterator[RateDeparture]:
    """Yield for each learning rate the first range of steps in which the siblings agree and the run differs.

    Rates that follow the loss differ between siblings: after their first disagreement nothing is judged.

    Args:
        run: The run.
        siblings: Its siblings.
        alike: Maximum relative difference of equal rates.
        min_departure: Minimum relative difference of a different rate.
    """
    own, theirs = learning_rate(run), [learning_rate(sibling.run) for sibling in siblings]
    for column, label in enumerate(own.labels):
        known = [series for series in theirs if label in series.places]
        if not known:
            continue
        steps = reduce(np.intersect1d, [series.steps for series in known], own.steps)
        rate = own.values[np.searchsorted(own.steps, steps), column]
        table = np.array([series.values[np.searchsorted(series.steps, steps), series.places[label]] for series in known])
        yield from _first(label, steps, rate, table, alike, min_departure)


def _first(
    label: str, steps: Steps, rate: Floats, table: Floats, alike: float, min_departure: float, *, lasting: int = 3
) -> Iterator[RateDeparture]:
    if not len(steps):
        return
    with np.errstate(invalid="ignore"):
        middle = np.median(table, axis=0)
        agree: Mask = np.logical_and.accumulate(np.ptp(table, axis=0) <= alike * np.abs(middle))
        apart: Mask = agree & (np.abs(rate - middle) > min_departure * np.maximum(np.abs(middle), np.abs(rate)))
    for begin, end in true_stretches(apart, min_points=min(lasting, len(steps))):
        held = begin > 0 and (table[0, begin] == table[0, begin - 1] or rate[begin] == rate[begin - 1])
        yield RateDeparture(
            label=label,
            first=int(steps[begin]),
            last=int(steps[end - 1]),
            own=float(rate[begin]),
            theirs=float(middle[begin]),
            siblings=len(table),
            may_follow_loss=len(table) == 1 or (held and bool(rate[begin] < middle[begin])),
        )
        return


def rate_finding(departure: RateDeparture) -> Finding:
    """Return the finding of a learning rate that leaves the schedule of its siblings."""
    whose = "its sibling" if departure.siblings == 1 else f"all {departure.siblings} siblings"
    when = (
        f"from step {departure.first} to {departure.last}" if departure.last > departure.first else f"at step {departure.first}"
    )
    finding = RATE.at(
        None,
        f"{when} the learning rate is not that of {whose}: {departure.own:.4g} at first, theirs {departure.theirs:.4g}",
        where=departure.label,
        first_step=departure.first,
        last_step=departure.last,
        value=encode_float(departure.own),
        limit=encode_float(departure.theirs),
    )
    return replace(finding, severity="note") if departure.may_follow_loss else finding
