"""Units of an activation function never fire."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.activations import all_zero_module_before, mostly_zero_function
from ckaudit.causes.shared.update_size import largest_update, weights_replaced
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.activations import activation_sparsity
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight_global, weight_std
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units as units_found
from ckaudit.rules.activations.dropout_rate_high import dropout_rate_high
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.gradients_carried_over import gradients_carried_over
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.frozen_parameter import frozen_parameter
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.weights.initialization_lost import initialization_lost
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable

DISPLACES_UNITS = (exploding_gradient, gradients_carried_over, initialization_lost, loss_spike, weights_grow)
"""Illnesses that leave units far outside the range in which they fire."""


@cause(
    prior=-1.0,
    explains=[units_found, zero_gradients],
    follows=[
        starved_branch,
        activation_drift,
        barely_moving,
        dead_parameter,
        frozen_parameter,
        layer_not_contributing,
        loss_not_falling,
        loss_spike,
        vanishing_gradient,
    ],
    wants=[activation_sparsity, learning_rate, weight_std, optimizer_adapts, update_to_weight_global],
    knob="Lower the learning rate that threw the units there, and draw them anew; a ReLU may also become a GELU.",
    inspect="Share of silent units of each module over time, and the bias of the layer before it.",
    runbook="Draw the dead units' weights and biases anew from the last checkpoint where they fired; alone they stay dead.",
)
def dead_units(
    findings: Findings,
    sparsity: Series | None,
    rate: Series | None,
    std: Series | None,
    adapts: Series | None,
    update: Series | None,
    *,
    min_zero_share: float = 0.5,
    large_update: float = 0.03,
    decisive: float = 4.0,
    strong: float = 2.0,
) -> Iterator[Evidence]:
    """Units of an activation function never fire, so that what is before them gets no gradient.

    The share of zeros tells that units are dead; what came before tells whether that is the cause or a consequence:

    - A function that is open to one side gives zeros for about half of its inputs, `min_zero_share`.
    - Where units are dead, the share of zeros among the function's outputs is that of the gradient around it, or larger.
    - Where all weights have shrunk by then, or began far too small, or where dropout removes most of the units, silent units are
      a consequence.
    - Units also fall silent by a rate that under Adam replaces weights in a step, and by updates above `large_update` of the
      weights just before. They are a consequence then, too.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    silent, gone = findings.first(units_found), findings.first(zero_gradients)
    if silent is not None:
        yield supports(decisive, silent.message, silent)
        if rate is None and update is None:
            yield contradicts(
                decisive - 1, "neither rates nor updates are recorded: what silenced the units cannot be seen", silent
            )
    elif gone is not None and (zeros := _around(gone, sparsity, min_zero_share)):
        yield supports(
            strong + 1,
            f"{zeros[1]:.0%} of the outputs of {zeros[0]} are exactly zero, as is the gradient around it",
            activation_sparsity.name,
        )
    else:
        yield contradicts(decisive, "no activation function is silent", gone)
    if silent is not None and (before := all_zero_module_before(sparsity, silent.where)) is not None:
        nothing = f"all that {before} puts out, just before, is exactly zero: nothing comes in"
        yield contradicts(decisive + 1, nothing, activation_sparsity.name)
    shrunk = findings.first(weights_shrink)
    if shrunk is not None and (silent is None or (shrunk.first_step or 0) <= (silent.first_step or 0)):
        yield contradicts(decisive + 1, f"all weights shrink, and units with them: {shrunk.message}", shrunk)
    if silent is not None:
        yield from weights_replaced(rate, std, adapts, silent.first_step, strong)
        if (size := largest_update(update, silent.first_step)) is not None and size > large_update:
            thrown = f"an update changed {size:.2g} of the weights by then: it threw the units there"
            yield contradicts(strong, thrown, update_to_weight_global.name)
    if silent is not None and (earlier := findings.before((silent.first_step or 0) + 1).of(*DISPLACES_UNITS)):
        yield contradicts(strong + 1, f"something threw the units there: {earlier[0].message}", earlier[0])
    if drops := findings.first(dropout_rate_high):
        yield contradicts(decisive, f"units are silent because they are dropped: {drops.message}", drops)
    if (worn := findings.first(vanishing_gradient)) and silent is not None and (worn.first_step or 0) <= (silent.first_step or 0):
        yield contradicts(strong / 2, f"the gradient is worn down from block to block already: {worn.message}", worn)
    if scale := findings.first(weight_scale_off):
        yield contradicts(strong, f"it was so from the start for another reason: {scale.message}", scale)


def _around(gone: Finding, sparsity: Series | None, min_zero_share: float) -> tuple[str, float] | None:
    """Return a function in the blocks of tensors without a gradient that has as many zeros as they, and its share of zeros."""
    if sparsity is None or not isinstance(gone.value, float):
        return None
    table = TensorTable({})
    depths = {table.depth(place) for place in (gone.where, *gone.also) if place} - {None}
    return mostly_zero_function(sparsity, depths, max(min_zero_share, gone.value), table)
