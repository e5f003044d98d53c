"""Statistics are recorded so often that they slow the training down."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.overhead import recording_share
from ckaudit.rules.files.heavy_checkpoints import heavy_checkpoints
from ckaudit.rules.files.recording_overhead import recording_overhead
from ckaudit.rules.rule import FACTS
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.rules.systems.step_time_jump import step_time_jump
from ckaudit.rules.systems.throughput_drop import throughput_drop
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    good_checkpoint="newest",
    explains=[recording_overhead, heavy_checkpoints],
    follows=[throughput_drop, step_time_jump, low_utilization],
    wants=[recording_share, FACTS],
    knob="Record at every 10th step at first and at every 1,000th later, which is the default cadence.",
    inspect="The cost of each checkpoint in steps, and the distance between checkpoints.",
    runbook="Nothing is broken: change the cadence at the next start; a watcher of events still records what happens between.",
)
def recording_too_often(
    _: Findings,
    share: Series | None,
    facts: Manifest | None,
    *,
    apart: float = 5.0,
    budget: float = 0.1,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Statistics are recorded so often that they slow the training down.

    Checkpoints at most `apart` steps from each other are closer than any default. Recording that takes more than `budget` of the
    time is felt. Log odds are first guesses.
    """
    if share is None or not share.finite.any():
        return
    known = share.recorded_rows()
    if len(known.steps) < 2:
        yield contradicts(2 * strong, "there is a single checkpoint: it is slow, not one of too many", share.name)
    elif (distance := median(np.diff(known.steps))) <= apart:
        yield supports(strong, f"there is a checkpoint at every {distance:.3g} steps", share.name)
    else:
        yield contradicts(2 * strong, f"checkpoints are {distance:.3g} steps apart: each one is slow, not too many", share.name)
    usual = median(known.values[known.finite])
    if usual > budget:
        yield supports(medium, f"recording takes {usual:.0%} of the time (median)", share.name)
    if facts is not None and facts.cadence and any(cadence.every <= apart for cadence in facts.cadence):
        yield supports(medium, "run.json asks for so many", "run.json")
