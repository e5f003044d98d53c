"""Something other than the optimizer has written to weights."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Findings, cause, contradicts, places_of, supports
from ckaudit.causes.precision.silent_data_corruption import is_absurd, largest_element_share
from ckaudit.causes.shared.loss_curves import loss_jump
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.spikes import grad_norm_over_median
from ckaudit.metrics.weights import update_norm, weight_max_abs, weight_norm
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
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
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[weights_jump, loss_spike],
    follows=[
        activation_drift,
        barely_moving,
        contradicted_claim,
        dead_parameter,
        dead_units,
        dominant_tensor,
        entropy_collapse,
        exploding_gradient,
        frequent_clipping,
        layer_not_contributing,
        logit_growth,
        loss_rises,
        nonfinite_values,
        saturated_units,
        update_out_of_band,
        vanishing_gradient,
        weights_alike,
        zero_gradients,
    ],
    wants=[weight_max_abs, update_norm, weight_norm, FACTS, train_loss_raw, val_loss, grad_norm_over_median],
    knob="Find the code that wrote at that step: a second initialization, a rescaling, an averaging, a load, a hook.",
    inspect="What runs at that step beside the optimizer, in callbacks, evaluation and checkpointing.",
    runbook="Stop. Go back to the last checkpoint before the step; its difference to the next shows which elements were written.",
)
def weights_changed_outside_optimizer(
    findings: Findings,
    largest: Series | None,
    moved: Series | None,
    size: Series | None,
    facts: Manifest | None,
    train: Series | None,
    val: Series | None,
    gradient: Series | None,
    *,
    alone: float = 0.9,
    alike: float = 0.02,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Something other than the optimizer has written to weights: whole tensors are new, zero, or a multiple of themselves.

    How many elements changed, and by how much, tells whether code wrote to the weights:

    - One element with more than `alone` of the change is a flipped bit.
    - Tensors that change by the same share, within `alike`, were multiplied by one number.
    - Where no weights were recorded, both losses jump within a step, out of calm gradients, and both come back slowly. A batch
      would leave the held-out loss alone; other data would keep it high.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    jump = findings.first(weights_jump)
    if jump is None:
        yield from _by_curves(findings, size, train, val, gradient, decisive, medium)
    if jump is None or jump.first_step is None:
        return
    if tiny := findings.before(jump.first_step + 1).first(weight_scale_off):
        yield contradicts(strong, f"any update is large here: {tiny.message}", tiny)
        return
    share = largest_element_share(jump, largest, moved, size)
    if share is not None and share > alone:
        yield contradicts(strong, f"one element makes up {share:.1%} of the change of {jump.where}: that is no code", jump)
    elif share is not None:
        yield supports(strong, f"all of {jump.where} changed, not one element of it", jump)
    elif not is_absurd(jump, largest):
        yield supports(strong, f"much of {jump.where} changed, and no element is larger than twice what it had before", jump)
    places = sorted(places_of(finding for finding in findings.of(weights_jump) if finding.first_step == jump.first_step))
    if len(places) > 1:
        yield supports(medium, f"{len(places)} tensors changed in the same step", jump)
    yield from _how(jump, places, moved, size, alike, medium)
    seams = [session.resumed_from for session in (facts.sessions if facts and facts.sessions is not UNSET else ())]
    if any(step is not UNSET and step + 1 == jump.first_step for step in seams):
        yield contradicts(strong, "the run was taken up again at this step: other weights were loaded", jump)


def _how(
    jump: Finding, places: list[str], moved: Series | None, size: Series | None, alike: float, medium: float
) -> Iterator[Evidence]:
    """Say whether weights were set to zero or multiplied by one number."""
    after = [_at(size, place, jump.first_step) for place in places]
    if after and all(value == 0 for value in after):
        yield supports(medium, f"{places[0]} is all zeros afterwards", jump)
        return
    changes = [_at(moved, place, jump.first_step) for place in places]
    shares = np.array([change / norm for change, norm in zip(changes, after, strict=True) if change is not None and norm])
    if len(shares) > 1 and np.ptp(shares) < alike * shares.mean():
        yield supports(medium, f"all change by {shares.mean():.3g} of their new size: they were multiplied by one number", jump)


def _at(series: Series | None, place: str, step: int | None) -> float | None:
    if series is None or place not in series.places:
        return None
    rows = np.flatnonzero(series.steps == step)
    return float(series.values[rows[0], series.places[place]]) if len(rows) else None


def _by_curves(
    findings: Findings,
    size: Series | None,
    train: Series | None,
    val: Series | None,
    gradient: Series | None,
    decisive: float,
    medium: float,
    *,
    lead: int = 3,
    calm: float = 2.0,
    slow: int = 10,
) -> Iterator[Evidence]:
    """Judge a run in which no weights were seen to jump; by its losses where no weights were recorded."""
    spike = findings.first(loss_spike)
    if spike is None or size is not None:
        yield contradicts(decisive, "no weights change more than the optimizer moves them", "RESUME003")
        return
    both = loss_jump(train, val, spike.first_step or 0)
    if both is None or both.held_out < both.rise / 4:
        yield contradicts(decisive, "the two losses do not jump together within a step", train_loss_raw.name)
        return
    if other := findings.before(both.step + 1).first(learning_rate_jump, exploding_gradient, nonfinite_values):
        yield contradicts(decisive, f"there is a reason: {other.message}", other)
    if both.held_out_stays > 0.5 or (spike.last_step or 0) - both.step < slow:
        yield contradicts(decisive, "the held-out loss stays high, or the jump is over at once", val_loss.name)
        return
    yield supports(medium, f"both losses jump within one step, {both.step}, and come back slowly: the model was hurt", spike)
    before = np.empty(0)
    if gradient is not None:
        known = gradient.finite[:, 0] & (gradient.steps < both.step) & (gradient.steps >= both.step - lead)
        before = gradient.values[known, 0]
    if before.size and before.max() < calm:
        yield supports(medium, f"in the {lead} steps before, gradients were as ever", grad_norm_over_median.name)
    elif before.size:
        yield contradicts(
            2 * medium, "the gradient rises before the loss: the model left its basin by itself", grad_norm_over_median.name
        )
