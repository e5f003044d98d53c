"""One tensor's gradient sets the global norm."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.gradients import coefficient_without, largest_share
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import gradient_share
from ckaudit.metrics.optimizer import clip_coefficient
from ckaudit.rules.attention.mask_leak import mask_leak
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.decay_outweighs_learning import decay_outweighs_learning
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

OTHER_TROUBLE = (
    initial_loss_off,
    learning_rate_jump,
    loss_rises,
    loss_spike,
    mask_leak,
    nonfinite_values,
    seam_jump,
    token_drift,
    update_out_of_band,
    weights_jump,
    weights_shrink,
    decay_outweighs_learning,
    learning_rate_zero,
    schedule_off_plan,
    weight_scale_off,
)
"""Illnesses that may raise one tensor's gradient; where they come first, they are another cause."""


@cause(
    prior=-1.5,
    explains=[dominant_tensor, frequent_clipping, exploding_gradient],
    follows=[starved_branch, barely_moving, loss_spike, update_out_of_band],
    wants=[gradient_share, clip_coefficient, FACTS],
    knob="Lower the learning rate or scale of that tensor alone, or regularise it; then look at what feeds it.",
    inspect="Gradient norm per tensor and the tail of that tensor's gradient histogram.",
    runbook="Save a checkpoint at a clipped step; compare the tensor's gradient with and without the batch's longest sample.",
)
def one_tensor_dominates(
    findings: Findings,
    share: Series | None,
    left: Series | None,
    facts: Manifest | None,
    *,
    warmup: int = 100,
    out_of_place: float = 0.03,
    strong: float = 3.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """One tensor makes up most of the gradient norm, so clipping starves the others.

    A tensor dominates where it has, from the first finding on, more than half of the squared norm: more than all others together.
    Not every such tensor is to blame:

    - The embedding carries 95 to 99 % of the gradient norm in the first steps of every healthy run: the first `warmup` steps do
      not count.
    - Where clipping would leave less than `out_of_place` of the gradient even without the tensor, the limit is to blame, not the
      tensor.
    - In a small model one tensor often dominates, which says little where it did so before, or where nobody knows what is
      clipped.
    - Where nothing is clipped, no tensor takes from the others.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(dominant_tensor, frequent_clipping, exploding_gradient)
    start = max(warmup, (first.first_step or 0) - 1) if first is not None else warmup
    largest = largest_share(share, after=start)
    if share is None or largest is None:
        return
    where, value = largest
    is_at_a_jump = first is not None and first.code == exploding_gradient.code
    is_clipped = left is not None and bool((left.values[left.finite] < 1).any())
    if largest.is_majority:
        onset = first.first_step if first is not None else None
        is_usual = not is_clipped or table_of(facts).kind(where) == "embedding" or not _grew(share, where, value, onset)
        weight = medium / 2 if is_at_a_jump else medium if is_usual else strong  # in any jump some tensor has the most
        yield supports(weight, f"{where} makes up {value:.0%} of the squared gradient norm", share.name)
    else:
        yield contradicts(strong, f"no tensor makes up more than {value:.0%} of the squared gradient norm", share.name)
    without = coefficient_without(left, largest)
    if without is not None and without < out_of_place:
        yield contradicts(strong, f"without {where}, too, clipping would leave {without:.2g} of it", clip_coefficient.name)
    if first is not None and is_at_a_jump and _had_as_much(share, where, value, first.first_step):
        yield contradicts(strong, f"{where} made up as much of it before the gradient exploded", share.name)
    if left is None and is_at_a_jump:
        yield contradicts(strong, "nothing tells whether anything is clipped", clip_coefficient.name)
    if left is not None and left.finite.any() and not is_clipped:
        yield contradicts(strong, "nothing is clipped: no tensor takes from the others", clip_coefficient.name)
    if named := findings.first(dominant_tensor):
        yield supports(medium, named.message, named)
    if first is not None and (earlier := _trouble_before(findings, first.first_step or 0)):
        yield contradicts(strong, f"the run was ill before: {earlier[0].message}", earlier[0])


def _trouble_before(findings: Findings, step: int) -> list[Finding]:
    """Return other illnesses that came before a step, or else jumps of the rate or the weights up to and at that step."""
    return findings.before(step).of(*OTHER_TROUBLE) or findings.before(step + 1).of(learning_rate_jump, weights_jump)


def _grew(share: Series, where: str, value: float, step: int | None, *, times: float = 1.5) -> bool:
    """Tell whether a tensor's share is `times` its median at the checkpoints before a step, or was not recorded before."""
    column = share.places[where]
    before = share.values[share.finite_in(column) & (share.steps < (step or 0)), column]
    return not before.size or median(before) * times <= value


def _had_as_much(share: Series, where: str, value: float, step: int | None, *, of_it: float = 0.8) -> bool:
    """Tell whether a tensor had `of_it` of its share, at the median checkpoint, before a step."""
    column = share.places[where]
    before = share.values[share.finite_in(column) & (share.steps < (step or 0)), column]
    return bool(before.size) and median(before) >= of_it * value
