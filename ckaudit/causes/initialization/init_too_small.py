"""The initial weights are too small."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.redundant_heads import redundant_heads
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.initialization_lost import initialization_lost
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[weight_scale_off],
    follows=[
        initialization_lost,
        activation_drift,
        barely_moving,
        dead_parameter,
        dead_units,
        exploding_gradient,
        layer_not_contributing,
        loss_not_falling,
        loss_spike,
        redundant_heads,
        uniform_heads,
        update_out_of_band,
        vanishing_gradient,
        weights_alike,
        weights_jump,
        zero_gradients,
    ],
    wants=[update_to_weight_global],
    knob="Draw matrices with a spread of about one over the root of their fan-in (0.02 for a GPT).",
    inspect="Spread of each matrix at step 0 against its fan-in, and the size of outputs from block to block.",
    runbook="Nothing to save: begin again with a larger scale, and compare the first gradient norms of all blocks.",
)
def init_too_small(
    findings: Findings, update: Series | None, *, own_size: float = 0.1, decisive: float = 4.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """The initial weights are too small, so that hardly any signal comes through.

    A matrix that is too small at step 0 was drawn too small: there is no other cause. The first updates are then as large as the
    weights: beyond `own_size` of them, where warmed-up trainings have a hundredth. Log odds are first guesses, to be fitted on
    runs of known truth.
    """
    scale = findings.first(weight_scale_off)
    if scale is None or not isinstance(scale.value, float) or not isinstance(scale.limit, float):
        return
    if scale.value > scale.limit:
        yield contradicts(decisive, "the median matrix begins too large, not too small", scale)
        return
    yield supports(decisive, scale.message, scale)
    known = update.values[update.finite] if update is not None else np.empty(0)
    if update is not None and known.size and float(known[0]) > own_size:
        yield supports(
            medium, f"the first recorded update is {float(known[0]):.2g} of the weights: they are next to nothing", update.name
        )
    if dead := findings.first(dead_parameter):
        yield supports(medium, f"hardly anything comes back through such weights: {dead.message}", dead)
