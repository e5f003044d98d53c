"""An operation of model or loss is undefined for valid inputs."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.shared.batches import target_tokens
from ckaudit.causes.shared.loss_curves import (
    breaks_in_evaluation_alone,
    gradient_of_broken_loss,
    has_finite_loss_before,
    has_gradient_before,
    too_high_at_first,
)
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import loss_scale
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.words import element_type, optimizer_adapts
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.hidden_nonfinite import hidden_nonfinite
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.column_builder import DTYPES
from ckaudit.run.run_facts import is_adaptive, is_loss_scaled
from ckaudit.run.series import Series

INSTABILITIES = (loss_spike, loss_rises, exploding_gradient, update_out_of_band, entropy_collapse, logit_growth, weights_jump)


@cause(
    prior=-1.0,
    explains=[nonfinite_values],
    follows=[barely_moving, dead_parameter, hidden_nonfinite, impossible_value, loss_not_falling, skipped_updates],
    wants=[train_loss_raw, gradient_norm, loss_scale, tokens_seen, grad_global_norm, element_type, optimizer_adapts],
    knob="Make the operation safe: log_softmax, an epsilon under roots and logs, no division by a count of zero.",
    inspect="log, sqrt, division, pow and masked softmax in loss and model; torch.autograd.set_detect_anomaly names the line.",
    runbook="Stop: such weights never recover. Go back to the last finite checkpoint; run the next batch with anomaly detection.",
)
def nonfinite_operation(
    findings: Findings,
    loss: Series | None,
    norm: Series | None,
    scale: Series | None,
    tokens: Series | None,
    whole: Series | None,
    types: Series | None,
    adapts: Series | None,
    *,
    lead: int = 20,
    min_tensor_share: float = 0.9,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """An operation of model or loss is undefined for valid inputs, such as the log of zero.

    Such an operation strikes a healthy run, on any batch:

    - Signs of illness within `lead` steps before the first bad value speak against this cause.
    - No sign of illness there speaks for it, if the loss was recorded then. It does so the more if the gradient was recorded too:
      a loss alone does not tell what broke first.
    - A NaN from the loss reaches the gradient of every tensor (over `min_tensor_share` of them) in the same step.
    - A loss that is finite again at the next step was broken by one batch. So was that of a batch without targets or of odd
      tokens.
    - Where the gradient of that very step is finite, the batch went through the model unharmed.
    - Adam with weights in float16 divides by what rounds to zero.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    first = findings.first(nonfinite_values)
    if first is None or first.first_step is None:
        return
    start = first.first_step
    is_watched = has_gradient_before(whole, start, within=lead)
    if alone := breaks_in_evaluation_alone(findings, loss):
        yield contradicts(medium, alone, first)
        return
    ill = _ill_just_before(findings, start, lead)
    if ill is not None:
        yield contradicts(strong, f"the run was ill before: {ill.message}", ill)
    elif start <= lead and (first_loss := too_high_at_first(loss)):
        yield contradicts(
            strong, f"the loss was {first_loss[1]:.4g} before any update: numbers that large overflow", train_loss_raw.name
        )
    elif start == 1 and first.where == grad_global_norm.name:
        yield supports(strong, "the gradient of the first step is not finite, before any update", first)
    elif start > lead and has_finite_loss_before(loss, start, within=lead):
        yield supports(strong if is_watched else medium, f"nothing was wrong in the steps before step {start}", first)
    if grown := findings.first(weights_grow):
        yield contradicts(strong, f"the weights run away, and numbers overflow: {grown.message}", grown)
    if loss is not None:
        yield from _course(loss, start, strong, medium, is_watched=is_watched)
    if ill is None and (size := gradient_of_broken_loss(loss, whole, start)):
        yield supports(
            strong, f"yet its gradient is {size:.3g}: a term that the weights do not reach is undefined", grad_global_norm.name
        )
    broken = _first_broken(norm) if norm is not None else 0
    if norm is not None and broken >= max(1, min_tensor_share * len(norm.labels)):
        yield supports(
            medium, f"the gradients of {broken} of {len(norm.labels)} tensors break together: it comes from the loss", first
        )
    if odd := next((finding for finding in findings.of(token_drift) if finding.first_step == start), None):
        yield contradicts(strong, f"the batch of that step is odd: {odd.message}", odd)
    if tokens is not None:
        yield from _batch(tokens, start, strong, medium)
    yield from _by_precision(types, adapts, scale, strong, medium)


def _ill_just_before(findings: Findings, start: int, lead: int) -> Finding | None:
    """Return the first instability that lasted until shortly before a step."""
    instabilities = findings.before(start + 1).of(*INSTABILITIES)
    return next((each for each in instabilities if each.last_step is not None and each.last_step >= start - lead), None)


def _by_precision(
    types: Series | None, adapts: Series | None, scale: Series | None, strong: float, medium: float
) -> Iterator[Evidence | Advice]:
    """Judge by what half precision does to the optimizer's numbers and to the gradients."""
    if is_adaptive(adapts) and _weights_are_float16(types):
        zero = "weights are float16, where an epsilon below 6e-8 and the square of a gradient below 2e-4 are zero"
        yield supports(2 * strong, f"{zero}: Adam divides by them", element_type.name)
        yield Advice(
            "Keep the weights in float32 and let autocast compute in half precision, or train in bfloat16: Adam's epsilon of "
            "1e-8 is zero in float16."
        )
    if scale is not None and is_loss_scaled(scale):
        yield contradicts(medium, "a loss scaler is at work: half precision may have overflowed", scale.name)


def _weights_are_float16(types: Series | None) -> bool:
    """Tell whether most tensors are float16 at the first checkpoint."""
    if types is None or not len(types.steps):
        return False
    own = types.only(lambda label: label.startswith("weights/"))
    known = own.values[0][own.finite[0]]
    return bool(known.size and (known == DTYPES.index("float16")).mean() > 0.5)


def _first_broken(norm: Series) -> int:
    """Return how many gradients are not finite at the first checkpoint where any is."""
    counts = norm.nonfinite.sum(axis=1)
    return int(counts[np.argmax(counts > 0)]) if len(counts) else 0


def _course(loss: Series, start: int, strong: float, medium: float, *, is_watched: bool) -> Iterator[Evidence]:
    """Judge whether the loss breaks first, and whether it is whole again at the next step."""
    known = loss.steps[loss.nonfinite[:, 0]]
    if not len(known) or known[0] != start:
        return
    if is_watched:
        yield supports(medium, f"the loss itself is the first to break, at step {start}", loss.name)
    after = loss.values[(loss.steps > start) & loss.recorded[:, 0], 0]
    if len(after) and abs(after[0]) < float("inf"):
        yield contradicts(strong, "the loss is finite again at the next step, on another batch", loss.name)


def _batch(tokens: Series, start: int, strong: float, medium: float) -> Iterator[Evidence]:
    """Judge by the count of target tokens whether the batch of a step had as many as those before it."""
    count, usual = target_tokens(tokens, start) or (0.0, 0.0)
    if count == 0 and usual > 0:
        yield contradicts(strong, f"the batch of step {start} has no target token, others {usual:.0f}", tokens.name)
    elif usual > 0 and count >= usual / 2:
        yield supports(medium / 2, f"the batch of step {start} has {count:.0f} target tokens, as others have", tokens.name)
