"""Weights are kept in half precision, where small updates vanish."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.weights import update_to_weight
from ckaudit.metrics.words import element_type
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.updates.updates_held_back import updates_held_back
from ckaudit.rules.updates.updates_rounded_away import updates_rounded_away
from ckaudit.run.column_builder import DTYPES
from ckaudit.run.series import Series

HALF_ULP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
"""Relative change of an element below which rounding to nearest may undo all of it: half the distance to the next number."""


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[updates_rounded_away, barely_moving, loss_not_falling, update_out_of_band, updates_held_back],
    follows=[uniform_heads],
    wants=[element_type, update_to_weight],
    knob="Keep a float32 copy of the weights for the optimizer, or round stochastically; half precision is for the arithmetic.",
    inspect="The element type of parameters and of the optimizer's moments; updates over weights against 1/512.",
    runbook="Save the weights as float32 and go on from them with master weights; what is learnt so far is not lost.",
)
def updates_lost_to_rounding(
    findings: Findings,
    types: Series | None,
    update: Series | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Weights are kept in half precision, where updates smaller than their last digit vanish.

    An update below 2^-9 of an element is rounded away in bfloat16, below 2^-12 in float16. Weights in single precision rule this
    cause out; elements that an update was seen to leave as they were are decisive. A gradient of zero makes no update to lose.
    Log odds are on the common scale (`causes/cause.py`).
    """
    kept = _type_of_weights(types) if types is not None else None
    if types is None or kept is None:
        yield contradicts(strong, "nothing says that weights are kept in half precision", element_type.name)
        return
    if kept not in HALF_ULP:
        yield contradicts(decisive, f"most weights are kept in {kept}", types.name)
        return
    if lost := findings.first(updates_rounded_away):
        yield supports(decisive, lost.message, lost)
        return
    still = places_of(findings.of(barely_moving))
    if still and still <= places_of(zero for zero in findings.of(dead_parameter) if zero.value == 0):
        yield contradicts(
            decisive, f"{first_and_others(still)}: no gradient, and so no update that rounding could take", "GRAD003"
        )
        return
    limit = HALF_ULP[kept]
    yield supports(strong, f"weights are kept in {kept}, which rounds away changes below {limit:.1g} of an element", types.name)
    usual = update.late_median() if update is not None else None
    if usual is not None and usual < limit:
        yield supports(strong, f"the usual update is {usual:.1g} of its tensor, below that", update_to_weight.name)
    elif usual is not None:
        yield contradicts(medium, f"the usual update is {usual:.1g} of its tensor, and is not lost", update_to_weight.name)
    if idle := [finding for finding in findings.of(barely_moving) if finding.severity == "sev1"]:
        yield supports(medium, idle[0].message, idle[0])


def _type_of_weights(types: Series) -> str | None:
    """Return the type of most weight tensors at their last checkpoint, None where it is not known."""
    weights = types.only(lambda label: label.startswith("weights/")).recorded_rows()
    if not len(weights.steps):
        return None
    numbers, counts = np.unique(weights.values[-1][weights.finite[-1]], return_counts=True)
    commonest = int(numbers[counts.argmax()]) if len(numbers) else len(DTYPES)
    return DTYPES[commonest] if commonest < len(DTYPES) else None
