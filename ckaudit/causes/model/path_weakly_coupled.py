"""A part of the model hangs on the loss by a thin thread."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, first_and_others, places_of, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.moe.router_imbalance import router_imbalance
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_adaptive
from ckaudit.run.series import Mask, Series
from ckaudit.run.tensors import TensorTable, table_of

OTHER_EXPLANATIONS = (
    dead_units,
    weights_alike,
    weight_scale_off,
    weights_shrink,
    router_imbalance,
    entropy_collapse,
    logit_growth,
    loss_spike,
    exploding_gradient,
    update_out_of_band,
    nonfinite_values,
)
"""Illnesses that weaken a gradient by themselves where they come first."""


@cause(
    prior=-1.0,
    explains=[barely_moving, starved_branch, dead_parameter],
    follows=[layer_not_contributing],
    wants=[gradient_norm, optimizer_adapts, FACTS],
    knob="Inspect upstream gradients and mask logic: what scales this path down, such as a gate, a mask or a tiny factor.",
    inspect="The ranking of tensors by relative movement, and the flow of the gradient on either side of the weak part.",
    runbook="Save the checkpoint; on one batch, follow the gradient from the loss back and see where it becomes small.",
)
def path_weakly_coupled(
    findings: Findings,
    norm: Series | None,
    adapts: Series | None,
    facts: Manifest | None,
    *,
    thin: float = 0.05,
    as_others: float = 0.3,
    few: float = 0.5,
    min_visible_share: float = 1e-4,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """A path through the model hangs on the loss by a thin thread: its gradient is there, and far too small.

    A tensor's gradient is compared with that of its namesakes in other blocks, or of the median tensor where it has none:

    - Tensors of a weak path have less than `thin` of that gradient.
    - Tensors with `as_others` of it or more are held back after the gradient is computed.
    - Where more than `few` of all tensors are weak, or of the namesakes of each weak one, the cause is not one path.
    - An optimizer of Adam's kin moves a tensor whatever the size of its gradient: an update of exactly zero has another reason
      then.
    - An update of exactly zero has another reason under any optimizer where the tensor's share of the gradient is above
      `min_visible_share`: single precision resolves that of an update of a thousandth.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    still = [
        finding
        for finding in findings.of(barely_moving, dead_parameter)
        if finding.value != 0 or finding.code == barely_moving.code
    ]
    places = places_of(still)
    halted = [finding for finding in still if finding.code == barely_moving.code and finding.value == 0]
    if halted and is_adaptive(adapts):
        yield contradicts(strong, f"Adam's kin move a tensor however weak its gradient is: {halted[0].message}", halted[0])
    yield from _of_biases(places, strong)
    if starved := findings.first(starved_branch):
        yield supports(strong, f"a part of a block gets little: {starved.message}", starved)
    if norm is not None and (weak := _weakest(norm, places, table_of(facts))):
        yield from _by_share(*weak, halted if weak[0] in places_of(halted) else [], thin, as_others, min_visible_share, strong)
        if len(places) > few * len(norm.labels):
            yield contradicts(strong, f"{len(places)} of {len(norm.labels)} tensors stand still: that is not one path", norm.name)
        elif _are_most_of_their_like(norm.labels, places, table_of(facts), few):
            what = f"{first_and_others(places)}: most of their namesakes in other blocks are as weak, so that is not one path"
            yield contradicts(strong, what, norm.name)
    onset = findings.first(barely_moving, starved_branch, dead_parameter)
    if onset is not None and (other := findings.before((onset.first_step or 0) + 1).of(*OTHER_EXPLANATIONS)):
        yield contradicts(strong + 1, f"there is another reason for it: {other[0].message}", other[0])
    if worn := findings.first(vanishing_gradient):
        yield contradicts(medium, f"the gradient gets narrow at a block: {worn.message}", worn)
    if dead := [finding for finding in findings.of(dead_parameter) if finding.value == 0]:
        yield contradicts(strong, f"{first_and_others(places_of(dead))}: no gradient at all, not a weak one", dead[0])


def _by_share(
    name: str, share: float, halted: Sequence[Finding], thin: float, as_others: float, min_visible_share: float, strong: float
) -> Iterator[Evidence | Advice]:
    """Judge by a tensor's gradient over that of its like; `halted` are findings by which it does not move at all."""
    if share == 0:
        yield contradicts(strong, f"{name} gets no gradient at all: it is cut off, not weak", gradient_norm.name)
    elif share > min_visible_share and halted:
        what = f"{name} does not move at all, and {share:.2g} times the gradient of its like would move it"
        yield contradicts(strong, what, halted[0])
    elif share < thin:
        yield supports(strong, f"{name} gets {share:.2g} times the gradient of its like", gradient_norm.name)
        yield Advice(
            f"Inspect the gradients upstream of {name} and the mask logic: what scales this path down, such as a gate, a "
            "mask or a tiny factor."
        )
    elif share >= as_others:
        yield contradicts(strong, f"{name} gets {share:.2g} times the gradient of its like: that is enough", gradient_norm.name)


def _of_biases(places: Collection[str], strong: float) -> Iterator[Evidence]:
    """Judge by whether the tensors that barely move are all biases."""
    if places and all(map(is_bias, places)):
        yield contradicts(
            strong, f"{first_and_others(places)}: what leads to a bias leads to its weight as well, and that moves", "MOVE001"
        )


def _are_most_of_their_like(labels: Sequence[str], places: Collection[str], table: TensorTable, few: float) -> bool:
    """Tell whether more than `few` of the namesakes of each place are places too; one without a namesake is a path of its own."""
    roles = table.roles(labels)
    all_of, weak = Counter(roles), Counter(role for role, name in zip(roles, labels, strict=True) if name in places)
    return bool(weak) and all(all_of[role] > 1 and count > few * all_of[role] for role, count in weak.items())


def _weakest(norm: Series, places: Collection[str], table: TensorTable) -> tuple[str, float] | None:
    """Return the tensor with the smallest gradient relative to its like in the later half, and that ratio; None without one."""
    late = norm.values[len(norm.values) // 2 :]
    known: Mask = np.asarray(np.isfinite(late).any(axis=0))
    usual = np.full(len(norm.labels), np.nan)
    usual[known] = np.nanmedian(late[:, known], axis=0)
    roles = table.roles(norm.labels)
    shares = {}
    for place, name in enumerate(norm.labels):
        if name not in places or not known[place]:
            continue
        others = [other for other, role in enumerate(roles) if role == roles[place] and norm.labels[other] not in places]
        alike = usual[others][np.isfinite(usual[others])]
        middle = median(alike) if len(alike) else float(np.nanmedian(usual))
        if middle > 0:
            shares[name] = float(usual[place]) / middle
    return min(shares.items(), key=lambda item: item[1], default=None)
