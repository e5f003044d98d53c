"""Hardware has changed a number."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, places_of, supports
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.spikes import grad_norm_over_median
from ckaudit.metrics.weights import update_norm, weight_max_abs, weight_norm
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.wording import plural


@cause(
    prior=-1.0,
    explains=[weights_jump, exploding_gradient],
    follows=[
        activation_drift,
        barely_moving,
        contradicted_claim,
        dead_parameter,
        dead_units,
        dominant_tensor,
        entropy_collapse,
        frequent_clipping,
        logit_growth,
        loss_rises,
        loss_spike,
        nonfinite_values,
        saturated_units,
        update_out_of_band,
        vanishing_gradient,
        zero_gradients,
    ],
    wants=[weight_max_abs, update_norm, weight_norm, train_loss_raw, grad_norm_over_median],
    knob="Take the device out of service and go back to the last checkpoint before it; no setting of the training is to blame.",
    inspect="ECC and machine-check logs of the device that holds the tensor; the element's value and place.",
    runbook="Stop. Keep the checkpoints around the step; replay it from the one before on another device and compare bits.",
)
def silent_data_corruption(
    findings: Findings,
    largest: Series | None,
    moved: Series | None,
    size: Series | None,
    loss: Series | None,
    gradient: Series | None,
    *,
    alone: float = 0.9,
    calm: float = 1.5,
    lead: int = 20,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Hardware has changed a number: one element is absurd, and nothing else.

    A flipped bit changes one element and nothing else:

    - An element of a weight has grown by over `alone` of the length of its tensor's whole change.
    - An element of a gradient makes the norm jump for a single step, as it never does otherwise, while the loss is at most `calm`
      times the median of the 20 before.
    - A training that ran away more than `lead` steps before has absurd elements by itself.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    jump = findings.first(weights_jump)
    if jump is not None:
        share = largest_element_share(jump, largest, moved, size)
        if share is not None and share > alone:
            yield supports(decisive, f"one element makes up {share:.1%} of the change of {jump.where}", jump)
        elif share is not None:
            yield contradicts(strong, f"many elements of {jump.where} changed, the largest by {share:.1%} of the change", jump)
        elif not is_absurd(jump, largest):
            yield contradicts(strong, f"no element of {jump.where} is larger than twice what it had before", jump)
        count = len(places_of(findings.of(weights_jump)))
        if count == 1:
            yield supports(medium, f"{jump.where} is the only tensor that changed so", jump)
        else:
            yield contradicts(strong, f"{count} tensors changed so", jump)
        if ill := findings.before((jump.first_step or 0) - lead).first(loss_spike, loss_rises, input_scale_off):
            yield contradicts(decisive, f"the training was ill before: {ill.message}", ill)
        return
    shock = findings.first(exploding_gradient)
    if shock is not None:
        yield from _shock(findings, shock, loss, gradient, calm, strong, medium)


def largest_element_share(jump: Finding, largest: Series | None, moved: Series | None, size: Series | None) -> float | None:
    """Return the growth of the largest element in a jump, over the length of the change, at most 1.

    Where the jump came between two checkpoints, the finding tells how large it was over the larger of the two norms.
    """
    element, step, norm = (_cell(series, jump) for series in (largest, moved, size))
    was = None if largest is None else _cell(largest, jump, earlier=1)
    before = None if size is None else _cell(size, jump, earlier=1)
    if norm is not None and before is not None and isinstance(jump.value, float):
        step = max(step or 0.0, jump.value * max(norm, before))
    return None if element is None or not step else min(1.0, max(0.0, element - (was or 0.0)) / step)


def is_absurd(jump: Finding, largest: Series | None, *, times: float = 2.0) -> bool:
    """Tell whether a tensor may hold one element that is out of all proportion: over `times` the largest before the jump."""
    after, before = _cell(largest, jump), _cell(largest, jump, earlier=1)
    return after is None or before is None or after > times * before


def _cell(series: Series | None, jump: Finding, *, earlier: int = 0) -> float | None:
    """Return the place's value at the step of a jump, or so many rows earlier."""
    if series is None or jump.where not in series.places:
        return None
    rows = np.flatnonzero(series.steps == (jump.worst_step if jump.worst_step is not None else jump.first_step))
    column, row = series.places[jump.where], int(rows[0]) - earlier if len(rows) else -1
    return float(series.values[row, column]) if row >= 0 and series.finite[row, column] else None


def _as_large(gradient: Series, step: int, *, share: float = 0.1) -> int:
    """Return at how many other steps the gradient over its median is at least `share` of its value at the given step."""
    own = gradient.values[(gradient.steps == step) & gradient.finite[:, 0], 0]
    return int((np.nan_to_num(gradient.values[gradient.steps != step, 0]) >= share * own[0]).sum()) if own.size else 0


def _shock(
    findings: Findings, shock: Finding, loss: Series | None, gradient: Series | None, calm: float, strong: float, medium: float
) -> Iterator[Evidence]:
    """Judge a jump of the gradient norm without one of the weights."""
    if shock.first_step is None or shock.first_step != shock.last_step:
        yield contradicts(strong, "the gradient norm is large for more than one step", shock)
        return
    yield supports(strong, f"{shock.message}; at the next step it is as before", shock)
    if earlier := findings.before(shock.first_step).of(loss_spike, loss_rises, logit_growth):
        yield contradicts(2 * strong, f"the training was ill before: {earlier[0].message}", earlier[0])
    if gradient is not None and (as_large := _as_large(gradient, shock.first_step)):
        yield contradicts(2 * strong, f"the gradient norm comes near that at {plural(as_large, 'other step')} too", gradient.name)
    if loss is None:
        return
    before = loss.values[(loss.steps < shock.first_step) & loss.finite[:, 0], 0][-20:]
    at_step = loss.values[(loss.steps == shock.first_step) & loss.finite[:, 0], 0]
    if not len(before) or not len(at_step):
        return
    usual = median(before)
    if abs(float(at_step[0])) <= calm * abs(usual) and not findings.since(shock.first_step).of(loss_spike):
        yield supports(
            medium, f"the loss of that step is {at_step[0]:.3g}, as ever: neither batch nor weights were wrong", loss.name
        )
    else:
        yield contradicts(
            strong,
            f"the loss of that step is {at_step[0]:.3g}, or jumps after it: the batch or the weights were wrong",
            loss.name,
        )
