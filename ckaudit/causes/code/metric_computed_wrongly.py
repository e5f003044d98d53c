"""A logged number is not what its formula gives."""

import math
from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.speed import mfu
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.rules.resume.weights_jump import weights_jump

NUMBERS_FROM_ELSEWHERE = (train_loss_raw.name, val_loss.name, mfu.name)
"""Numbers whose impossible values come from what goes in, not from a formula."""
FACTORS = (100.0, 0.01, 1000.0, 0.001, 1024.0, 1 / 1024, 8.0, 1 / 8)
"""Percent for a share, kilo, kibi, bits for bytes, and each the other way round."""


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[contradicted_claim, impossible_value],
    knob="Compare the formula used with that of `ckaudit explain`: base of the logarithm, factor, percent, what is averaged.",
    inspect="The line that computes the number named; compute it by hand once from the raw numbers of one step.",
    runbook="The training itself may be well: decide nothing by this number, recompute it from the raw log.",
)
def metric_computed_wrongly(
    findings: Findings,
    *,
    min_points: int = 2,
    near: float = 0.02,
    near_factor: float = 0.15,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """A logged number is not what its formula gives.

    A wrong formula is wrong at `min_points` points in a row or more; a single wrong point is an event. Log odds are on the common
    scale (`causes/cause.py`). Two ratios of the logged number to the allowed one tell which slip it is:

    - A usual factor is met within `near_factor`, for what is allowed is a range.
    - The ratio of two bases of logarithms is met within `near`.
    """
    claim = findings.first(contradicted_claim)
    if claim is not None:
        points = claim.points or 0
        if points >= min_points:
            yield supports(strong, f"{claim.message}, and so at {points} points in a row", claim)
        else:
            yield contradicts(strong, f"{claim.where} is wrong at one point only", claim)
        if slip := _slip(claim, near, near_factor):
            yield supports(medium, slip, claim)
        if jump := findings.first(weights_jump):
            yield contradicts(medium, f"something else happened: {jump.message}", jump)
        return
    for finding in findings.of(impossible_value):
        if finding.where in NUMBERS_FROM_ELSEWHERE or finding.message.startswith(NUMBERS_FROM_ELSEWHERE):
            yield contradicts(strong, f"{finding.message}: what goes into it is wrong, not its formula", finding)
        else:
            yield supports(strong, finding.message, finding)


def _slip(claim: Finding, near: float, near_factor: float) -> str | None:
    """Return which usual slip turns the number that it should be into the logged one; None where none fits."""
    if not isinstance(claim.value, float) or not isinstance(claim.limit, float) or claim.value <= 0 or claim.limit <= 0:
        return None
    for factor in FACTORS:
        if abs(claim.value / claim.limit / factor - 1) < near_factor:
            return f"it is about {factor:.4g} times what it should be"
    if claim.limit == 1:
        return None
    power = math.log(claim.value) / math.log(claim.limit)
    for base in (2, 10):
        if abs(power / math.log(base) - 1) < near:
            return f"it is as if taken to base {base} where e is meant"
    return None
