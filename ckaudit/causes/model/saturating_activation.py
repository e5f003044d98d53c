"""An activation function works where it is flat."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.activations import bounded_functions, is_activation_function
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.activations import activation_max_abs, activation_mean_abs
from ckaudit.metrics.gradients import block_gradient_norm
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.initialization_lost import initialization_lost
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[saturated_units, vanishing_gradient],
    follows=[
        starved_branch,
        activation_drift,
        barely_moving,
        dead_parameter,
        layer_not_contributing,
        loss_not_falling,
        update_out_of_band,
        zero_gradients,
    ],
    wants=[activation_max_abs, activation_mean_abs, block_gradient_norm],
    knob="Use a function that is open to one side (ReLU, GELU) in hidden layers, or smaller weights before the bounded one.",
    inspect="Histogram of the outputs of the module named, and of what goes into it.",
    runbook="Save one checkpoint with activations; on a fixed batch, print the slope of the function at its inputs.",
)
def saturating_activation(
    findings: Findings,
    largest: Series | None,
    usual: Series | None,
    norm: Series | None,
    *,
    slope: float = 2.0,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """An activation function works where it is flat, so that little gradient comes through.

    A sigmoid's slope is a quarter at most: the gradient shrinks by more than a factor of `slope` at each layer of a stack of
    them. Where updates had taken the weights far from where they began, or the inputs are of another scale, the flat ends are a
    consequence. Log odds are first guesses, to be fitted on runs of known truth.
    """
    ends, starved = findings.first(saturated_units), findings.first(vanishing_gradient)
    if ends is not None:
        yield supports(decisive, ends.message, ends)
        if lost := findings.before((ends.first_step or 0) + 1).first(initialization_lost):
            yield contradicts(strong + medium, f"something drove it there: {lost.message}", lost)
        if scale := findings.first(input_scale_off):
            yield contradicts(decisive, f"its inputs drive it there: {scale.message}", scale)
    if largest is None or usual is None:
        if ends is None:
            yield contradicts(medium, "the outputs of activation functions were not recorded", starved)
        return
    functions = [name for name in largest.labels if is_activation_function(name)]
    flat = bounded_functions(largest, usual)
    if functions and len(flat) > len(functions) / 2:
        yield supports(
            strong, f"the outputs of {len(flat)} of {len(functions)} functions, {flat[0]} first, stay within 1", largest.name
        )
    elif ends is None:
        yield contradicts(strong, "no activation function works between bounds", largest.name)
        return
    if starved is not None and norm is not None and (loss := _per_block(norm, starved.first_step)) and loss > slope:
        yield supports(
            medium, f"the gradient falls {loss:.1f}x at every such layer; a sigmoid's slope is a quarter at most", starved
        )


def _per_block(norm: Series, step: int | None) -> float | None:
    """Return the factor by which the gradient shrinks at each block on its way back, on average."""
    row = int(np.searchsorted(norm.steps, step or 0))
    values = norm.values[min(row, len(norm.values) - 1)]
    if len(values) < 3 or not (np.isfinite(values) & (values > 0)).all():
        return None
    return float(np.exp(np.log(values[-1] / values[0]) / (len(values) - 1)))
