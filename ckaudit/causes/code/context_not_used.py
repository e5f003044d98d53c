"""The model predicts from the last token alone."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.frozen_parameter import frozen_parameter
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of


@cause(
    prior=-1.5,
    explains=[starved_branch, loss_not_falling, uniform_heads, layer_not_contributing],
    follows=[barely_moving, dead_parameter, frozen_parameter, update_out_of_band, vanishing_gradient],
    wants=[gradient_norm, update_to_weight_global, FACTS],
    knob="Look at what attention adds to the stream: its output's scale, its mask, the positions it is given.",
    inspect="Gradient of attention's matrices beside those of the MLP in the same block, and what each adds to the stream.",
    runbook="Save the checkpoint; on one batch shuffle all tokens but the last: a loss that stays the same is the proof.",
)
def context_not_used(
    findings: Findings,
    norm: Series | None,
    update: Series | None,
    facts: Manifest | None,
    *,
    starved: float = 100.0,
    usual: float = 3e-3,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The model predicts from the last token alone: what attention adds does not count.

    Attention that is not used gets a gradient `starved` times smaller than that of the MLPs beside it (the playbook calls a block
    starved from that ratio on). Updates that never reach `usual` of the weights (recipes aim at about 1e-3) speak against this
    cause: the whole model is hardly trained. Log odds are first guesses, to be fitted on runs of known truth.
    """
    if norm is not None and (ratio := _mlp_over_attention(norm, facts)) is not None:
        if ratio > starved:
            yield supports(strong + 1, f"attention gets {ratio:.0f}x less gradient than the MLPs, in every block", norm.name)
        elif ratio < starved / 10:
            yield contradicts(strong, f"attention gets its share of the gradient: the MLPs have {ratio:.2g}x as much", norm.name)
    else:
        yield contradicts(medium, "the gradients of attention and MLP were not recorded", "gradient_norm")
    if heads := findings.first(uniform_heads):
        yield supports(medium, heads.message, heads)
    if update is not None and update.finite.any() and float(update.values[update.finite].max()) < usual:
        yield contradicts(strong, "hardly any weight is moved by its updates", update.name)
    if ill := findings.first(target_misalignment, weights_alike, weights_shrink, learning_rate_zero):
        yield contradicts(strong, f"nothing can be learnt of the context: {ill.message}", ill)
    dead = findings.first(dead_parameter)
    if dead is not None and dead.value == 0:
        yield contradicts(strong, f"{dead.where} gets no gradient at all: it is cut off", dead)


def _mlp_over_attention(norm: Series, facts: Manifest | None) -> float | None:
    """Return the smallest ratio of the MLP's gradient to attention's among the blocks: each the median of the first half."""
    table = table_of(facts)
    early = norm.values[: max(1, len(norm.values) // 2)]  # (T, P)
    places: dict[tuple[str | None, str], list[int]] = {}
    for column, name in enumerate(norm.labels):
        places.setdefault((table.block(name), table.kind(name)), []).append(column)
    ratios = []
    for block in dict.fromkeys(block for block, _ in places if block):
        columns = [places.get((block, kind)) for kind in ("mlp", "attention")]
        if all(columns):
            mlp, attention = (np.sqrt(np.square(early[:, index]).sum(axis=1)) for index in columns)
            known = (attention > 0) & np.isfinite(mlp) & np.isfinite(attention)
            ratios.append(median(mlp[known] / attention[known]) if known.any() else np.nan)
    return min(ratios) if ratios and np.isfinite(ratios).all() else None
