"""One batch holds what the loss cannot digest."""

import math
from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.shared.batches import target_tokens, token_shift
from ckaudit.causes.shared.loss_curves import (
    breaks_in_evaluation_alone,
    count_jumps_since,
    gradient_at_jump,
    gradient_of_broken_loss,
    has_finite_loss_before,
    has_gradient_before,
    too_high_at_first,
)
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.data import target_shift_match, token_kl_drift
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.inputs import input_scale
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import loss_scale
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.spikes import grad_norm_over_median, spike_flags
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.data.input_drift import input_drift
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.target_misalignment import is_of_one_batch, target_misalignment
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.precision.overflow import overflow
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.resume.optimizer_state_reset import optimizer_state_reset
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_loss_scaled
from ckaudit.run.series import Series
from ckaudit.wording import plural

INSTABILITIES = (loss_rises, loss_spike, exploding_gradient, update_out_of_band, entropy_collapse)
OTHER_EXPLANATIONS = (
    weights_jump,
    learning_rate_jump,
    seam_jump,
    optimizer_state_reset,
    schedule_off_plan,
    weight_scale_off,
    weights_grow,
    logit_growth,
    weights_shrink,
)
"""Illnesses that make the loss jump, and that no batch makes."""
SEVERAL_JUMPS = 3
"""From so many jumps in one run on, a single batch is not the cause."""


@cause(
    prior=-1.0,
    explains=[nonfinite_values, loss_spike, target_misalignment],
    follows=[token_drift, exploding_gradient, frequent_clipping, update_out_of_band, activation_drift, skipped_updates, overflow],
    wants=[
        loss_scale,
        train_loss_raw,
        token_kl_drift,
        grad_norm_over_median,
        update_to_weight_global,
        tokens_seen,
        spike_flags,
        grad_global_norm,
        input_scale,
        target_shift_match,
    ],
    knob="Skip steps whose loss is not finite; look at that batch: empty targets, a division by a zero count, a corrupt sample.",
    inspect="The batch of the first bad step, and the history of the checkpoint after it.",
    runbook="Stop. Keep the last good checkpoint and the batch's hash; feed that batch alone through the last good weights.",
)
def bad_batch(
    findings: Findings,
    scale: Series | None,
    loss: Series | None,
    tokens: Series | None,
    gradient: Series | None,
    update: Series | None,
    counted: Series | None,
    flags: Series | None,
    norm: Series | None,
    inputs: Series | None,
    match: Series | None,
    *,
    lead: int = 20,
    short: int = 20,
    jump: float = 4.0,
    large_update: float = 0.03,
    strong: float = 2.5,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """One batch, or a few, hold something unlike the rest, and break the loss out of a healthy state.

    What came before the first bad value, and what came after it, tells whether a batch is to blame:

    - Signs of illness within `lead` steps before the first bad value speak against a batch.
    - A jump that a batch makes is over within `short` steps.
    - Where the loss is known at every step, and is back at the next or the one after, the jump was that batch's own. A gradient
      that jumps at the very same step, to `jump` times its median, confirms it.
    - Where the loss takes longer to come back, the weights took harm, as from weights that are overwritten or a rate that is
      raised. A batch is only a guess then.
    - A gradient that jumps before the loss led the loss there, which speaks against a batch.
    - A gradient of a hundred times its median or more, at the step of the jump itself, throws the weights, and nothing need come
      back.
    - Updates above `large_update` of the weights, or three jumps of the loss, show a training that is unstable without any bad
      batch.
    - A batch that was seen to be odd needs no such signs.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    broken, spike = findings.first(nonfinite_values), findings.first(loss_spike)
    if alone := breaks_in_evaluation_alone(findings, loss):
        yield contradicts(strong, alone, broken)
        return
    if broken is not None and broken.first_step is not None:
        yield from _broken(findings, broken, loss, norm, lead, strong, medium)
        odd = [*_odd(findings, broken.first_step, counted, strong), *_odd_inputs(inputs, broken.first_step, strong)]
        yield from odd
        if not odd and loss is not None and int(loss.nonfinite[loss.steps >= broken.first_step].sum()) > lead:
            yield contradicts(medium, "the loss does not come back, and nothing tells that the batch was odd", loss.name)
        if scale is not None and is_loss_scaled(scale):
            yield contradicts(medium, "a loss scaler is at work: half precision may have overflowed", scale.name)
    elif spike is not None and spike.first_step is not None:
        yield Advice(
            f"Look at the batch of step {spike.first_step}: corrupt or very long samples, wrong labels; clip the gradient, or "
            "skip a batch whose loss is far above the rest."
        )
        if odd := list(_odd_inputs(inputs, spike.first_step, strong)):
            yield from odd
            return
        if thrown := _throws_the_weights(findings, gradient, spike, jump):
            yield supports(medium, thrown, spike)  # so do all batches from then on, where the data has changed
            return
        is_own = _is_over_at_once(spike, loss)
        yield from _jumped(findings, spike, loss, short, strong if is_own else medium / 2, strong, medium)
        yield from _unstable(spike, flags, loss, update, lead, spike.first_step + short, large_update, strong)
        yield from _gradient(gradient, spike, jump, medium, is_own=is_own)
        yield from _tokens(findings, tokens, spike, short, strong)
    else:
        yield from _of_one_batch(findings, match, strong)


def _of_one_batch(findings: Findings, match: Series | None, strong: float) -> Iterator[Evidence]:
    """Judge a run in which nothing breaks and nothing jumps, by targets that are wrong once."""
    wrong = findings.first(target_misalignment)
    if wrong is None or match is None or wrong.last_step is None:
        return
    if is_of_one_batch(match, wrong.points or 1, wrong.last_step):
        yield supports(strong, f"at step {wrong.first_step} alone {wrong.message}", wrong)


def _unstable(
    spike: Finding,
    flags: Series | None,
    loss: Series | None,
    update: Series | None,
    lead: int,
    until: int,
    large: float,
    strong: float,
) -> Iterator[Evidence]:
    """Judge whether the training was unstable by itself, or nothing is known yet of a healthy state."""
    step = spike.first_step or 0
    if (count := count_jumps_since(flags, loss, step)) >= SEVERAL_JUMPS:
        yield contradicts(strong, f"the loss has jumped {count} times since step {step}: no one batch does", spike)
    if step <= lead:
        yield contradicts(strong, f"at step {step} nothing is known yet of a healthy state", spike)
    if update is not None and (moved := _largest(update, until)) > large:
        yield contradicts(strong, f"updates of {moved:.2g} of the weights shake the loss, whatever the batch", update.name)


def _broken(
    findings: Findings, first: Finding, loss: Series | None, norm: Series | None, lead: int, strong: float, medium: float
) -> Iterator[Evidence | Advice]:
    """Judge a value that is not finite."""
    step = first.first_step or 0
    if first.where != "train_loss_raw" and not (loss is not None and loss.nonfinite.any()):
        yield Advice(
            f"Skip steps whose gradient is not finite, as at step {step}; look at that batch: empty targets, a division by a "
            "zero count, a corrupt sample."
        )
    near = [
        finding
        for finding in findings.before(step).of(*INSTABILITIES)
        if finding.last_step is not None and finding.last_step >= step - lead
    ]
    if near:
        yield contradicts(strong, f"the run was ill before: {near[0].message}", near[0])
    elif step <= lead and (first_loss := too_high_at_first(loss)):
        yield contradicts(strong, f"the loss was {first_loss[1]:.4g} before any update, on any batch", train_loss_raw.name)
    elif not has_finite_loss_before(loss, step):
        yield contradicts(strong, f"at step {step} nothing is known yet of a healthy state", first)
    elif step > lead and has_finite_loss_before(loss, step, within=lead):
        seen = strong if has_gradient_before(norm, step, within=lead) else medium
        yield supports(seen, f"nothing was wrong in the steps before step {step}", first)
    if first.where == "train_loss_raw":
        yield supports(medium, f"the loss itself is the first to break, at step {step}", first)
        yield from _comes_back(first, loss, medium)
    if size := gradient_of_broken_loss(loss, norm, step):
        unharmed = f"the gradient of that batch is {size:.3g}: it went through the model unharmed"
        yield contradicts(strong, unharmed, grad_global_norm.name)


def _comes_back(first: Finding, loss: Series | None, weight: float) -> Iterator[Evidence]:
    """Judge whether the loss, which broke, is finite again at all later steps."""
    if loss is None:
        return
    step = first.first_step or 0
    later = loss.values[(loss.steps > (first.last_step or step)) & loss.recorded[:, 0], 0]
    if later.size and np.isfinite(later).all():
        bad = int(loss.nonfinite[loss.steps >= step].sum())
        yield supports(
            weight,
            f"the loss is not finite at {plural(bad, 'step')}, and finite at all later ones: the weights took no harm",
            loss.name,
        )


def _odd(findings: Findings, step: int, counted: Series | None, strong: float) -> Iterator[Evidence]:
    """Judge whether the batch of the first bad step is unlike the others."""
    if drift := next((finding for finding in findings.of(token_drift) if finding.first_step == step), None):
        yield supports(strong, f"the batch of that step is odd: {drift.message}", drift)
    known = target_tokens(counted, step) if counted is not None else None
    if known is not None and known[0] == 0 < known[1]:
        yield supports(strong + 1, f"the batch of step {step} has no target token, others {known[1]:.0f}", tokens_seen.name)


def _odd_inputs(inputs: Series | None, step: int, strong: float, *, around: int = 5, ratio: float = 3.0) -> Iterator[Evidence]:
    """Judge whether a batch `around` a step has inputs `ratio` times as large as any before and after, or as small."""
    if inputs is None or not inputs.labels:
        return
    is_then = np.abs(inputs.steps - step) <= around
    then, others = (inputs.values[rows & (inputs.values[:, 0] > 0), 0] for rows in (is_then, ~is_then))
    if not then.size or others.size < 3:
        return
    worst = max(then, key=lambda value: abs(math.log(value) - math.log(median(others))))  # a ratio may be 0, or infinite
    if worst > ratio * others.max() or worst < others.min() / ratio:
        yield supports(strong + 1, f"its inputs have a scale of {worst:.3g}, all others {median(others):.3g}", input_scale.name)


def _throws_the_weights(findings: Findings, gradient: Series | None, spike: Finding, jump: float, *, shock: float = 100.0) -> str:
    """Return a sentence where loss and gradient jump at the very same step, out of a calm state and far enough to throw weights.

    The loss of a step is computed before its update. What makes the loss jump at once, and did not show in the gradient before,
    is that step's batch, or something that was done to the weights between two steps. Empty where neither is known.
    """
    step = spike.first_step or 0
    around = gradient_at_jump(gradient, step)
    if around is None or not around[0] <= jump < shock < around[1]:
        return ""
    if findings.before(step + 1).of(*OTHER_EXPLANATIONS) or findings.before(step).of(*INSTABILITIES):
        return ""
    if findings.first(input_drift, source_drift):
        return ""
    return f"the loss and the gradient, {around[1]:.3g} times its median, jump at the very same step, after calm ones"


def _is_over_at_once(spike: Finding, loss: Series | None, *, own: int = 2) -> bool:
    """Tell whether the loss is known step by step around a jump, and it lasts for less than `own` steps."""
    step, last = spike.first_step or 0, spike.last_step or 0
    near = 0 if loss is None else int(((loss.steps >= step - own) & (loss.steps <= step + own)).sum())
    return last - step < own and near > 2 * own


def _jumped(
    findings: Findings, spike: Finding, loss: Series | None, short: int, weight: float, strong: float, medium: float
) -> Iterator[Evidence]:
    """Judge a loss that jumps; `weight` is the evidence of a jump that is seen to be over within `short` steps."""
    step, last = spike.first_step or 0, spike.last_step or 0
    later = loss.steps[loss.finite[:, 0] & (loss.steps > last)] if loss is not None else np.empty(0, np.int64)
    back = int(later[0]) - step if later.size else last - step + 1
    if (other := findings.before(last + 1).of(*OTHER_EXPLANATIONS)) or (other := findings.before(step).of(*INSTABILITIES[1:])):
        yield contradicts(strong + 2, f"another thing was wrong by then: {other[0].message}", other[0])
    if back <= short and spike.severity != "sev1":
        yield supports(weight, f"the loss jumps at step {step} and is back after {plural(back, 'step')}", spike)
    elif last - step >= short or spike.severity == "sev1":
        yield contradicts(strong, f"it is not one jump: {spike.message}", spike)
    climbs = [rise for rise in findings.of(loss_rises) if step - short <= (rise.first_step or 0) <= last + 1]
    if climbs:
        yield contradicts(strong + 2, f"what came with it has not gone: {climbs[0].message}", climbs[0])
    if (count := len(findings.of(loss_spike))) > 2:
        yield contradicts(medium, f"the loss jumps {count} times", spike)


def _largest(update: Series, step: int) -> float:
    """Return the largest update until a step, 0 where none was recorded."""
    known = update.until(step).values
    return float(known[np.isfinite(known)].max(initial=0.0))


def _gradient(gradient: Series | None, spike: Finding, jump: float, weight: float, *, is_own: bool) -> Iterator[Evidence]:
    if gradient is None or spike.first_step is None or (around := gradient_at_jump(gradient, spike.first_step)) is None:
        return
    before, now = around
    if is_own and now > jump > before:
        yield supports(weight, f"the gradient is {now:.0f} times its median at the same step, and not before it", gradient.name)
    elif before > jump:
        yield contradicts(weight, "the gradient leads the loss: the model was leaving its basin before this batch", gradient.name)


def _tokens(findings: Findings, tokens: Series | None, spike: Finding, short: int, weight: float) -> Iterator[Evidence]:
    if tokens is not None and (now := token_shift(tokens)):
        yield contradicts(
            weight, f"the tokens stay {now[1]:.2g} nats away from step {now[2]} on: it is all batches since", tokens.name
        )
        return
    for drift in findings.of(token_drift):
        first, last = drift.first_step or 0, drift.last_step or 0
        if first <= (spike.last_step or 0) and last >= (spike.first_step or 0) and last - first < short:
            yield supports(weight, f"the tokens of those steps are unlike the rest, and only theirs: {drift.message}", drift)
            return
