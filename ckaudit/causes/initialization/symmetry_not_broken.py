"""Units or heads begin with equal weights."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.heads import head_similarity
from ckaudit.metrics.weights import weight_std
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.redundant_heads import redundant_heads
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="none",
    explains=[weights_alike, redundant_heads, dead_parameter, loss_not_falling],
    follows=[
        activation_drift,
        barely_moving,
        layer_not_contributing,
        loss_spike,
        uniform_heads,
        update_out_of_band,
        vanishing_gradient,
        zero_gradients,
    ],
    wants=[weight_std, head_similarity],
    knob="Draw every matrix at random; look for a constant fill, or an initialization that was skipped for this kind of tensor.",
    inspect="Spread of each matrix at step 0, and the code that initializes those named.",
    runbook="Nothing to save, for equal units stay equal: begin again from random weights.",
)
def symmetry_not_broken(
    findings: Findings,
    std: Series | None,
    similarity: Series | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Units begin with equal weights, so that they cannot become different.

    Units with equal weights get equal gradients, and stay equal:

    - A matrix without spread at its first record began so. One that loses its spread later was written to.
    - Heads that were alike at every record began as copies, unless all weights are so small that no head can be told from
      another.
    - Matrices that are all zero are equal too: nothing passes through them, forward or back.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    first = findings.first(weights_alike)
    copies = [finding for finding in findings.of(redundant_heads) if finding.severity == "sev2"]
    if copies and first is None:
        yield from _of_heads(copies[0], similarity, findings.first(weight_scale_off), decisive, strong)
    if first is None or first.first_step is None or std is None or not len(std.steps):
        return
    if first.first_step > int(std.steps[0]):
        yield contradicts(strong, f"the weights had a spread before step {first.first_step}: something wrote over it", first)
        return
    count = 1 + len(first.also)
    are = "are zero" if first.value == 0 and first.limit == 0 else "have elements that are all equal"
    yield supports(decisive, f"{count} matrices {are} at step {first.first_step}, the first recorded", first)
    if later := findings.first(dead_parameter, uniform_heads):
        yield supports(medium, f"units that are copies of each other cannot choose: {later.message}", later)


def _of_heads(
    copies: Finding, similarity: Series | None, scale: Finding | None, decisive: float, strong: float
) -> Iterator[Evidence]:
    """Tell heads that began as copies from heads that became alike, by the closest two of the layer at each earlier record."""
    labels = similarity.labels if similarity is not None else ()
    columns = [column for column, label in enumerate(labels) if label.partition("/")[0] == copies.where]
    if similarity is None or len(columns) < 2 or copies.first_step is None:
        return
    known = similarity.finite[:, columns].all(axis=1) & (similarity.steps <= copies.first_step)
    if not known.any():
        return
    nearest = np.sort(similarity.values[known][:, columns], axis=1)[:, -2]
    if scale is not None:
        yield contradicts(strong, f"heads of such weights cannot be told apart, copies or not: {scale.message}", scale)
    elif (nearest > redundant_heads.thresholds["copy_similarity"]).all():
        since = f"from step {int(similarity.steps[known][0])} on, to the last digits"
        yield supports(decisive, f"heads of {copies.where} were alike at every record {since}", copies)
    else:
        yield contradicts(strong, f"no two heads of {copies.where} were as alike before: they became so", copies)
