"""Inputs are on a scale that the model is not made for."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.inputs import input_scale
from ckaudit.metrics.loss import train_val_gap
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    good_checkpoint="none",
    explains=[input_scale_off],
    follows=[
        activation_drift,
        dead_units,
        exploding_gradient,
        initial_loss_off,
        loss_not_falling,
        loss_spike,
        overfitting,
        saturated_units,
        update_out_of_band,
        vanishing_gradient,
        weights_jump,
        zero_gradients,
    ],
    wants=[input_scale, train_val_gap],
    knob="Take the mean from the inputs and divide by their spread, in one place that training and evaluation share.",
    inspect="Mean and spread of one training batch and of one held-out batch, as the first layer gets them.",
    runbook="Keep the configuration; compare one batch of either pipeline, and begin again with inputs of unit scale.",
)
def inputs_not_normalized(
    findings: Findings, scale: Series | None, gap: Series | None, *, far: float = 50.0, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """Inputs are on a scale that the model is not made for.

    Layers are made for inputs of a scale of about one:

    - Bytes of an image are 255 times as large as their share of white. A scale more than `far` times above or below one is no
      choice of units, and any learning rate is too high or too low for it.
    - The first layer tells the scale by its weights, so that weights that began far off speak against this cause.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(input_scale_off)
    if first is None or not isinstance(first.value, float):
        return
    if first.value == 0:
        yield contradicts(2 * strong, f"the inputs of {first.where} are all zero: there is nothing to normalize", first)
        return
    if first.value > far or first.value < 1 / far:
        yield supports(
            2 * strong, f"inputs of {first.where} have a scale of {first.value:.3g}; layers are made for about one", first
        )
    if weights := findings.first(weight_scale_off):
        yield contradicts(strong, f"the weights were off as well: {weights.message}", weights)
    if scale is not None and (steady := scale.late_median()) is not None and steady > 0:
        yield supports(medium / 2, f"it is so to the end: {steady:.3g}", scale.name)
    if gap is not None and (level := gap.late_median()) is not None and _share(level, gap) > 1:
        yield supports(medium, f"held-out inputs seem to be on another scale: their loss lies {level:.2g} above", gap.name)


def _share(level: float, gap: Series) -> float:
    """Return the late gap over the early one, 0 where it does not widen."""
    early = gap.values[: max(1, len(gap.values) // 4)]
    start = float(abs(early[gap.finite[: len(early)]]).max()) if gap.finite[: len(early)].any() else 0.0
    return level / start if start > 0 else 0.0
