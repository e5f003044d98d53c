"""Gradients of earlier steps are never cleared and add up."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.gradients import loss_is_calm, norm_trend
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import grad_carried_over, grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.gradients_carried_over import gradients_carried_over
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-2.0,
    explains=[gradients_carried_over, frequent_clipping, exploding_gradient],
    follows=[
        activation_drift,
        dominant_tensor,
        entropy_collapse,
        logit_growth,
        loss_not_falling,
        loss_rises,
        loss_spike,
        nonfinite_values,
        update_out_of_band,
    ],
    wants=[grad_carried_over, grad_global_norm, train_loss_raw],
    knob="Call optimizer.zero_grad() once per update, before the first backward pass of it.",
    inspect="Where zero_grad stands in the loop, and whether it clears the parameters that the backward pass fills.",
    runbook="Stop; clear the gradients and go on from before the rise. One batch given twice must give one norm twice.",
)
def gradients_not_zeroed(
    findings: Findings,
    carried: Series | None,
    norm: Series | None,
    loss: Series | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
) -> Iterator[Evidence]:
    """Gradients of earlier steps are never cleared and add up.

    Gradients that are present before a step's own backward passes are decisive; their absence speaks against this cause. Where
    they were not recorded:

    - The gradient norm tells whether gradients add up (`NormTrend.adds_up`). The loss must react as well: otherwise what adds up
      belongs to tensors that no optimizer holds, clears or updates.
    - Where clipping shortens the sum in place, none of this can be seen.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    if left := findings.first(gradients_carried_over):
        yield supports(decisive, left.message, left)
        if left.severity == "sev1":
            yield supports(strong, f"so it is at all {left.points} points from step {left.first_step} on", left)
        return
    if carried is not None and carried.finite.any():
        steps = carried.steps[carried.finite.any(axis=1)]
        yield contradicts(
            decisive, f"gradients were cleared wherever that was looked at, from step {steps[0]} to {steps[-1]}", carried.name
        )
        return
    yield from _by_the_norm(findings, norm, loss, decisive, strong)


def _by_the_norm(
    findings: Findings, norm: Series | None, loss: Series | None, decisive: float, strong: float
) -> Iterator[Evidence]:
    course = norm_trend(norm)
    if norm is None or course is None:
        return
    if course.adds_up():
        yield supports(strong, f"the gradient norm rises from {course.start:.2g} to {course.peak:.2g}, step by step", norm.name)
        yield supports(
            strong, f"from one step to the next it changes by {course.change:.1%} only: it holds those before", norm.name
        )
        if loss_is_calm(findings, loss):
            yield contradicts(strong, "the loss takes no notice: what adds up is not what the weights are updated by", norm.name)
    else:
        yield contradicts(
            strong, f"the gradient norm does not add up: it changes by {course.change:.1%} from step to step", norm.name
        )
    if other := findings.first(impossible_value, initial_loss_off, loss_rises):
        yield contradicts(decisive, f"it may well rise, for {other.message}", other)
    if still := findings.first(barely_moving):
        yield contradicts(strong, f"tensors are not updated at all: {still.message}", still)
