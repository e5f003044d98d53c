"""The learning rate is too high for the curvature."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.shared.loss_curves import breaks_in_evaluation_alone, count_jumps_since, overshoot
from ckaudit.causes.shared.rate_course import known_rate
from ckaudit.causes.shared.update_size import excess_rate, first_spread, largest_update
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.spikes import spike_flags
from ckaudit.metrics.weights import matrices_begun_at_zero, update_to_weight_global, weight_rms, weight_std
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.attention.redundant_heads import redundant_heads
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.input_scale_off import input_scale_off
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.gradients_carried_over import gradients_carried_over
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.precision.overflow import overflow
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.initialization_lost import initialization_lost
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.run_facts import is_plain_descent
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

EXPLAINS = (
    initialization_lost,
    update_out_of_band,
    loss_spike,
    exploding_gradient,
    entropy_collapse,
    nonfinite_values,
    weights_grow,
    logit_growth,
    dead_units,
)
FOLLOWS = (
    starved_branch,
    *EXPLAINS,
    activation_drift,
    dead_parameter,
    dominant_tensor,
    frequent_clipping,
    loss_not_falling,
    loss_rises,
    overflow,
    redundant_heads,
    saturated_units,
    seam_jump,
    skipped_updates,
    uniform_heads,
    vanishing_gradient,
    learning_rate_jump,
    weights_jump,
    zero_gradients,
)
"""What follows where updates become too large, whatever made them so."""
INSTABILITIES = (loss_spike, exploding_gradient, entropy_collapse, weights_grow, logit_growth)
PRECEDES_OVERFLOW = tuple(rule for rule in EXPLAINS if rule is not nonfinite_values)
"""What grows before numbers overflow."""
OTHER_CAUSES = (learning_rate_jump, seam_jump, schedule_off_plan, weight_scale_off, nonfinite_values)
"""Illnesses that make the loss jump at a rate that is right."""


@cause(
    prior=-1.5,
    explains=EXPLAINS,
    follows=FOLLOWS,
    wants=[learning_rate, update_to_weight_global, weight_std, optimizer_adapts, spike_flags, weight_rms, train_loss_raw, FACTS],
    knob="Lower the peak learning rate by a factor of 3 to 10, or lengthen the warm-up.",
    inspect="Update over weight norm against the gradient norm, at the first checkpoint of the incident.",
    runbook="Resume with the lower rate from the last checkpoint before the first finding, on the same batches, or begin again.",
)
def learning_rate_too_high(
    findings: Findings,
    rate: Series | None,
    update: Series | None,
    std: Series | None,
    adapts: Series | None,
    flags: Series | None,
    size: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    *,
    large_update: float = 0.03,
    usual_rate: float = 1e-2,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """The learning rate is too high for the curvature of the loss.

    Signs are the size of the updates and of the rate, and the size at which the weights began:

    - Updates above `large_update` of the weights are large.
    - Few recipes go beyond a learning rate of `usual_rate`, but for plain descent. The first updates of plain descent lower the
      loss at any rate that is not too high.
    - Adam moves an element by about the rate: a rate above the first standard deviation of the weights replaces them in a step.
    - A model of which all matrices began at zero holds nothing but its updates, which are large beside it at any rate.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    if alone := breaks_in_evaluation_alone(findings, loss):
        yield contradicts(2 * strong, alone, val_loss.name)
    if first_sign_of_large_updates(findings) is None:
        yield contradicts(2 * strong, "updates are too small, not too large", update_to_weight_global.name)
    if off := [finding for finding in findings.of(input_scale_off) if isinstance(finding.value, float) and finding.value > 1]:
        yield contradicts(strong, f"any rate is too high for such inputs: {off[0].message}", off[0])
    if zeros := len(matrices_begun_at_zero(size, table_of(facts))):
        yield contradicts(strong, f"all {zeros} matrices began at zero, and any update is large beside that", weight_rms.name)
    elif band := [finding for finding in findings.of(update_out_of_band) if _above(finding.value, finding.limit)]:
        yield supports(strong, band[0].message, band[0])
    if update is not None and not zeros:
        yield from _updates(update, findings.first(*INSTABILITIES, dead_units), large_update, medium)
    if grown := [finding for finding in findings.of(weights_grow) if finding.where in ("median matrix", "median tensor")]:
        yield supports(strong, f"the weights run away together: {grown[0].message}", grown[0])
    if rate is None and update is None and (lost := findings.first(initialization_lost)):
        yield supports(strong, f"neither rates nor updates are recorded, and {lost.message}", lost)
    yield from _spikes(findings, flags, loss, strong)
    yield from _rate(findings, rate, update, std, adapts, usual_rate, strong, medium)
    if is_plain_descent(adapts) and (over := overshoot(loss)):
        what = f"the first updates raise the loss from {over[0]:.4g} to {over[1]:.4g}: they are too long for its curvature"
        yield supports(strong, what, train_loss_raw.name)
    if excess := excess_rate(rate, update, adapts, max_update=large_update / 3, max_adaptive_rate=usual_rate):
        yield Advice(
            f"Lower the peak learning rate from {excess.peak:.3g} to {excess.goal:.1g} or less, {excess.times:.0f} times lower; "
            "to lengthen the warm-up would not make up for that."
        )
    several = {
        finding.code
        for finding in findings.of(loss_spike, exploding_gradient, entropy_collapse)
        if finding.severity in ("sev0", "sev1")
    }
    if len(several) > 1:
        yield supports(medium, "loss, gradient and attention go wrong together, not one of them", min(several))
    # A loss that overflows breaks long before the weights do.
    broken = findings.of(nonfinite_values)[-1:]
    if broken and not findings.before(broken[0].first_step or 0).of(*PRECEDES_OVERFLOW):
        yield contradicts(strong, "nothing grew before the last number broke", broken[0])
    yield from _other_reasons(findings, strong)


def _other_reasons(findings: Findings, strong: float) -> Iterator[Evidence]:
    """Judge by what else makes updates large: a rate that was changed, gradients of more than one step, another plan."""
    if jump := rate_jump_before_trouble(findings):
        yield contradicts(strong, f"nothing was wrong at the rate of before: {jump.message}", jump)
    if kept := findings.first(gradients_carried_over):
        yield contradicts(2 * strong, f"updates are made of more than their own gradient: {kept.message}", kept)
    if off := [finding for finding in findings.of(schedule_off_plan) if _above(finding.value, finding.limit)]:
        yield contradicts(strong, f"the planned rate is not to blame: {off[0].message}", off[0])


def first_sign_of_large_updates(findings: Findings) -> Finding | None:
    """Return the earliest finding that too large updates may have caused; None where updates were too small, if anything."""
    of_small = {id(finding) for finding in findings.of(update_out_of_band) if not _above(finding.value, finding.limit)}
    return next((finding for finding in findings.of(*EXPLAINS) if id(finding) not in of_small), None)


def rate_jump_before_trouble(findings: Findings) -> Finding | None:
    """Return the upward jump of the learning rate after which all trouble by large updates began; None where there is none.

    The trouble must begin by twice the step of the jump: after that the rate is no longer a new one.
    """
    trouble, jump = findings.first(*INSTABILITIES), findings.first(learning_rate_jump)
    if trouble is None or jump is None or not _above(jump.value, jump.limit):
        return None
    since, began = jump.first_step or 0, trouble.first_step or 0
    return jump if since <= began <= 2 * since else None


def _spikes(
    findings: Findings, flags: Series | None, loss: Series | None, weight: float, *, several: int = 3
) -> Iterator[Evidence]:
    """Judge spikes after a calm time: no single batch makes `several` of them, and what makes them goes on (TRI-2)."""
    first = findings.first(loss_spike)
    if first is None or first.first_step is None or findings.before(first.first_step).of(*OTHER_CAUSES):
        return
    # Jumps of the loss that are close together are one incident; the gradient comes back sooner and shows each.
    spikes = max(len(findings.since(first.first_step).of(rule)) for rule in (loss_spike, exploding_gradient))
    count = max(spikes, count_jumps_since(flags, loss, first.first_step))
    if count >= several:
        yield supports(weight, f"it was calm until step {first.first_step}, and has jumped {count} times since", first)


def _is_late(first: Finding | None, *, filled: int = 100) -> bool:
    """Tell whether trouble began after Adam's moments were `filled`, too late for a warm-up to have prevented it."""
    return first is not None and (first.first_step or 0) > filled


def _above(value: float | str | None, limit: float | str | None) -> bool:
    return value is not None and limit is not None and float(value) > float(limit)


def _updates(update: Series, trouble: Finding | None, large: float, weight: float) -> Iterator[Evidence]:
    """Judge the updates that led to the trouble, and the median of the second half: early updates of a small model are large."""
    usual, then = update.late_median(), largest_update(update, trouble.first_step if trouble is not None else None)
    if then is not None and then > large:
        yield supports(weight, f"an update changes {then:.2g} of the weights where the trouble begins", update.name)
    elif usual is not None and usual > large:
        yield supports(weight, f"an update changes {usual:.2g} of the weights (median); {large:g} is already much", update.name)
    elif usual is not None and max(usual, then or 0.0) < large / 3 and not _is_over(trouble, update):
        yield contradicts(weight / 2, f"an update changes only {usual:.2g} of the weights (median)", update.name)


def _is_over(trouble: Finding | None, update: Series) -> bool:
    """Tell whether trouble began before the second half of the record, of which the median update is taken."""
    return trouble is not None and (trouble.first_step or 0) < update.steps[len(update.steps) // 2]


def _rate(
    findings: Findings,
    rate: Series | None,
    update: Series | None,
    std: Series | None,
    adapts: Series | None,
    usual_rate: float,
    strong: float,
    medium: float,
) -> Iterator[Evidence]:
    """Judge the rate's height, its start, and where it was when the trouble began."""
    steps, values = known_rate(rate)
    if not values.size or values.max() <= 0:
        return
    peak = float(values.max())
    plain = is_plain_descent(adapts)
    if peak > usual_rate and not plain:
        yield supports(
            medium, f"the learning rate peaks at {peak:.3g}; few recipes go beyond {usual_rate:.0e}", learning_rate.name
        )
    spread = first_spread(std)
    if spread and peak > spread and not plain and not findings.of(weight_scale_off, weights_alike):
        yield supports(
            strong,
            f"the learning rate peaks at {peak / spread:.2g} times the standard deviation of the first weights, and Adam moves "
            "an element by about the rate",
            learning_rate.name,
        )
    first = findings.first(*INSTABILITIES)
    spared = not plain and not _is_late(first) and excess_rate(rate, update, adapts) is None  # by a warm-up, as it seems
    if steps[0] <= 5 and values[0] > 0.5 * peak and spared:
        yield contradicts(
            strong, f"the rate begins at {values[0] / peak:.0%} of its peak: there was no warm-up", learning_rate.name
        )
    if first is not None and first.first_step is not None:
        yield from _when(steps, values, first.first_step, medium)


def _when(steps: np.ndarray, values: np.ndarray, first: int, medium: float, *, share: float = 0.3) -> Iterator[Evidence]:
    """Judge the rate at which the trouble began: far below its peak, it is hardly to blame.

    A rate that has been as high for long may still be to blame: the loss bends more sharply as training goes on.
    """
    before = values[steps <= first]
    if not before.size:
        return
    peak = values.max()
    if before[-1] < share * peak and before.max() >= peak:
        yield contradicts(medium, "the trouble begins when the learning rate is already far below its peak", learning_rate.name)
