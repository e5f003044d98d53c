"""The initial weights are too large."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import too_high_at_first
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[weight_scale_off, initial_loss_off, nonfinite_values],
    follows=[
        starved_branch,
        activation_drift,
        dead_parameter,
        dead_units,
        entropy_collapse,
        exploding_gradient,
        frequent_clipping,
        logit_growth,
        loss_not_falling,
        loss_spike,
        saturated_units,
        update_out_of_band,
        vanishing_gradient,
        zero_gradients,
    ],
    wants=[train_loss_raw, weight_rms],
    knob="Draw matrices with a spread of about one over the root of their fan-in (0.02 for a GPT), the head's no larger.",
    inspect="Spread of each matrix at step 0 against its fan-in, and the loss of step 1 against the log of the vocabulary.",
    runbook="Nothing to save: begin again with a smaller scale, and see that the first loss is the log of the vocabulary.",
)
def init_too_large(
    findings: Findings,
    loss: Series | None,
    size: Series | None,
    *,
    back: float = 1.0,
    fewest_tokens: float = 8.0,
    lead: int = 20,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The initial weights are too large, so that the model starts with confident wrong guesses.

    The size of the matrices decides; without that size, the losses do:

    - A matrix that is too large at step 0 was drawn too large: there is no other cause.
    - A high first loss alone may also be that of a sum. A mean comes down below `back` times a uniform guess; a sum over tokens
      does not, and costs `fewest_tokens` guesses and more.
    - Where numbers break within `lead` steps from a first loss that no guess costs, and weights were not recorded, this is one of
      several causes.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    scale = findings.first(weight_scale_off)
    if scale is not None:
        if isinstance(scale.value, float) and isinstance(scale.limit, float) and scale.value > scale.limit:
            yield supports(decisive, scale.message, scale)
        else:
            yield contradicts(decisive, "the median matrix begins too small, not too large", scale)
    first = findings.first(initial_loss_off)
    broken = findings.first(nonfinite_values)
    unknown = size is None and scale is None and first is None
    if unknown and broken and (broken.first_step or 0) <= lead and (first_loss := too_high_at_first(loss)):
        large = f"the loss was {first_loss[1]:.4g} before any update: weights, inputs or the loss itself are on too large a scale"
        yield supports(medium / 2, large, train_loss_raw.name)
    if first is None or not isinstance(first.value, float) or not isinstance(first.limit, float):
        return
    if first.value < 0:
        yield contradicts(decisive, "the first loss is below zero: no scale of weights makes it so", first)
        return
    end = _level(loss)
    if end is not None and end < back * first.limit:
        yield supports(strong, f"the loss comes from {first.value:.3g} down to {end:.3g}: only its start was wrong", first)
    elif end is not None and scale is None and first.value > fewest_tokens * first.limit:
        yield contradicts(strong, f"the loss is still {end:.3g}, above the {first.limit:.3g} of a guess, at the end", first)
    elif end is not None and first.value <= fewest_tokens * first.limit:
        yield supports(medium, f"a first loss of {first.value:.3g} is high, and too low for a sum over tokens", first)
    if inverted := findings.first(train_val_inverted):
        yield contradicts(medium, "held-out loss and training loss are not on one scale", inverted)


def _level(loss: Series | None, *, tail: float = 0.1) -> float | None:
    """Return the median of the last `tail` of the finite losses."""
    known = loss.values[loss.finite] if loss is not None else np.empty(0)
    return median(known[-max(5, int(tail * known.size)) :]) if known.size >= 10 else None
