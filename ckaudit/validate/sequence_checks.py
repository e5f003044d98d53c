"""The checkpoints of a run as a sequence: one file per step, none missing, clock and sessions rising."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from msgspec import UNSET

from ckaudit.contract.cadence import DEFAULT_CADENCE, is_due, ordinal
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.contract.schema.report import Finding
from ckaudit.validate.catalogue import CADENCE_GAP, CLOCK_BACK, DUPLICATE_STEP, MIXED_VERSIONS, SESSION_BACK
from ckaudit.validate.file_facts import CheckpointFacts, RunFacts


def mixed_versions(run: RunFacts) -> Iterator[Finding]:
    """Files of a version that this tool does not know, among files that it knows."""
    readable = len(run.checkpoints)
    for version, files in sorted(run.versions.items()):
        if readable or len(run.versions) > 1:
            message = f"{len(files)} files say {version}, {readable} say ck.analysis.v1"
            yield MIXED_VERSIONS.at(files[0], message, pointer="/schema_version", found=version, also=files[1:])


def duplicate_steps(run: RunFacts) -> Iterator[Finding]:
    """Two files of one step, or of one step and rank."""
    for (step, rank), files in groupby(sorted(run.checkpoints, key=_place), key=_place):
        first, *others = files
        of_rank = f" of rank {rank}" if rank >= 0 else ""
        for other in others:
            message = f"step {step}{of_rank} stands in {first.shown} too"
            yield DUPLICATE_STEP.at(other.shown, message, first_step=step, pointer="/step", also=[first.shown])


def _place(facts: CheckpointFacts) -> tuple[int, int]:
    return facts.step, -1 if facts.rank is None else facts.rank


def cadence_gaps(run: RunFacts) -> Iterator[Finding]:
    """Due steps between the first and the last recorded one that have no checkpoint.

    A run that declares no cadence is held to the default one, and hears of it once.
    """
    declared = run.manifest is not None and run.manifest.cadence is not UNSET
    cadence = run.manifest.cadence if declared and run.manifest else DEFAULT_CADENCE
    assert cadence is not UNSET
    gaps = [
        _gap(older, newer, shown, missing, cadence)
        for (older, _), (newer, shown) in pairwise(run.written_steps().items())
        if (missing := ordinal(newer - 1, cadence) - ordinal(older, cadence)) > 0
    ]
    yield from gaps if declared else _undeclared(gaps)


def _gap(older: int, newer: int, shown: str, missing: int, cadence: Sequence[Cadence]) -> Finding:
    due = _next_due(older, cadence)
    what = f"{missing} due steps are" if missing > 1 else "1 due step is"
    message = f"{what} missing between steps {older} and {newer}, the first is {due}"
    return CADENCE_GAP.at(shown, message, first_step=due, last_step=newer, points=missing)


def _next_due(step: int, cadence: Sequence[Cadence]) -> int:
    """Return the first due step after `step`; each stretch is entered once, however long it is."""
    for stretch in cadence:
        if stretch.every and (stretch.until is None or step < stretch.until):
            due = (step // stretch.every + 1) * stretch.every
            if is_due(due, cadence) and (stretch.until is None or due <= stretch.until):
                return due
            step = max(step, stretch.until or step)
    return step


def _undeclared(gaps: list[Finding]) -> Iterator[Finding]:
    if not gaps:
        return
    missing = sum(gap.points or 0 for gap in gaps)
    message = f"{missing} steps of the default cadence are missing, the first is {gaps[0].first_step}; run.json declares no other"
    yield CADENCE_GAP.at(gaps[0].file, message, first_step=gaps[0].first_step, last_step=gaps[-1].last_step, points=missing)


def sessions_back(run: RunFacts) -> Iterator[Finding]:
    """A checkpoint of a lower session at a higher step: history that was not renamed."""
    for older, newer in pairwise(facts for facts in run.merged() if facts.session is not None):
        if older.session is not None and newer.session is not None and newer.session < older.session:
            message = f"step {newer.step} is of session {newer.session}, but step {older.step} of session {older.session}"
            yield SESSION_BACK.at(newer.shown, message, first_step=newer.step, pointer="/session")


def clock_back(run: RunFacts, *, tolerance: float = 1.0) -> Iterator[Finding]:
    """A later step with an earlier time, in one session.

    Args:
        run: The run.
        tolerance: Seconds that a clock may go back by when it is set right; NTP slews smaller errors instead of jumping.
    """
    for older, newer in pairwise(run.merged()):
        if older.session != newer.session or isinstance(older.time, str) or isinstance(newer.time, str):
            continue
        if older.time is not None and newer.time is not None and newer.time < older.time - tolerance:
            message = f"the clock goes back by {older.time - newer.time:,.3g} s from step {older.step} to step {newer.step}"
            yield CLOCK_BACK.at(newer.shown, message, first_step=newer.step, pointer="/time")
