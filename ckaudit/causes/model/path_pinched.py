"""One block lets little gradient through."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, places_of, supports
from ckaudit.causes.shared.activations import bounded_functions
from ckaudit.causes.shared.update_size import weights_replaced
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.activations import activation_max_abs, activation_mean_abs
from ckaudit.metrics.gradients import block_gradient_norm
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import weight_max_abs, weight_std
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.saturated_units import saturated_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series
from ckaudit.run.tensors import TensorTable, table_of

OTHER_EXPLANATIONS = (
    weights_alike,
    weight_scale_off,
    weights_jump,
    dead_units,
    saturated_units,
    entropy_collapse,
    logit_growth,
    loss_spike,
    nonfinite_values,
    update_out_of_band,
)
"""Illnesses that pinch the gradient by themselves where they come first."""


class Pinch(Struct, frozen=True):
    """The place at which the gradient falls most on its way back.

    Attributes:
        block: The block with little gradient.
        behind: The next block towards the loss, which still has its usual gradient.
        fall: The factor by which the gradient falls between the two.
        share: Share of this fall in all falls along the way, in logarithms.
        step: The step that was examined.
    """

    block: str
    behind: str
    fall: float
    share: float
    step: int


@cause(
    prior=-0.5,
    explains=[vanishing_gradient],
    follows=[starved_branch, activation_drift, barely_moving, dead_parameter, layer_not_contributing, zero_gradients],
    wants=[
        block_gradient_norm,
        weight_max_abs,
        activation_max_abs,
        activation_mean_abs,
        learning_rate,
        weight_std,
        optimizer_adapts,
        FACTS,
    ],
    knob="Check the residual path at the block named: does it add to its input; then initial scale and norm parameters.",
    inspect="Activation statistics of what enters and leaves that block, beside the gradient norm per layer.",
    runbook="Save one checkpoint with activations; on a fixed batch, print the gradient on either side of that block.",
)
def path_pinched(
    findings: Findings,
    norm: Series | None,
    weights: Series | None,
    largest: Series | None,
    usual: Series | None,
    rate: Series | None,
    std: Series | None,
    adapts: Series | None,
    facts: Manifest | None,
    *,
    local: float = 0.6,
    thin: float = 0.1,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """One block lets little gradient through: the path around it is closed, or its norm is a bottleneck.

    The pinch is local where `local` of all that the gradient loses on its way back is lost within a third of the depth. A
    gradient that falls evenly is the sign of a structure without a path around its blocks. Norm parameters below `thin` of their
    namesakes in other blocks are the bottleneck. Log odds are on the common scale (`causes/cause.py`).
    """
    first = findings.first(vanishing_gradient)
    pinch = _pinch(norm, first) if norm is not None and first is not None else None
    if first is None or pinch is None:
        return
    yield Advice(
        f"Check the residual path at {pinch.block}: does it add to its input; then its initial scale, then its norm's parameters."
    )
    at = f"at step {pinch.step} the gradient falls {pinch.fall:.3g}x from {pinch.behind} to {pinch.block}"
    if pinch.share >= local:
        yield supports(strong, f"{at}, and hardly anywhere else", first)
    else:
        yield contradicts(strong, f"the gradient falls at many blocks: {at}, {pinch.share:.0%} of it all", first)
    tensors = table_of(facts)
    gain = None if weights is None else _thinnest(weights, pinch.block, pinch.step, tensors)
    if weights is not None and gain is not None and gain[1] < thin:
        yield supports(
            medium, f"{gain[0]} is {gain[1]:.2g} times its namesakes in other blocks: the norm lets little through", weights.name
        )
    if other := findings.before((first.first_step or 0) + 1).of(*OTHER_EXPLANATIONS):
        yield contradicts(strong, f"something else was wrong before: {other[0].message}", other[0])
    shrunk = findings.before((first.first_step or 0) + 1).of(weights_shrink)
    if shrunk and any(tensors.kind(name) != "norm" for name in places_of(shrunk)):
        yield contradicts(medium, f"the weights shrink: {shrunk[0].message}", shrunk[0])
    if (dead := findings.first(dead_parameter)) is not None and dead.value == 0:
        yield contradicts(strong, f"{dead.where} gets no gradient at all: it is cut off, not pinched", dead)
    yield from weights_replaced(rate, std, adapts, first.first_step, strong)
    if largest is not None and usual is not None and (flat := bounded_functions(largest, usual)):
        yield contradicts(medium, f"{flat[0]} works between bounds, where functions are flat", largest.name)


def _pinch(norm: Series, starved: Finding) -> Pinch | None:
    """Return the pinch at the step of the finding where it is narrowest, None where blocks are too few."""
    during = norm.steps >= (starved.first_step or 0)
    if starved.last_step is not None:
        during &= norm.steps <= starved.last_step
    rows = np.flatnonzero(during & norm.finite.all(axis=1) & (norm.values > 0).all(axis=1))
    if not len(rows) or len(norm.labels) < 3:
        return None
    falls = np.clip(np.diff(np.log(norm.values[rows]), axis=1), 0, None)  # (K, L - 1)
    row = int(np.argmax(falls.max(axis=1)))
    width = max(1, round(falls.shape[1] / 3))
    inside = np.lib.stride_tricks.sliding_window_view(falls[row], width).sum(axis=1)
    place, lost = int(np.argmax(inside)), float(falls[row].sum())
    if lost <= 0:
        return None
    norms = norm.values[rows[row]]
    narrow, wide = _ends(norms, place, width)
    return Pinch(
        block=norm.labels[narrow],
        behind=norm.labels[wide],
        fall=float(norms[wide] / norms[narrow]),
        share=float(inside[place]) / lost,
        step=int(norm.steps[rows[row]]),
    )


def _ends(norms: Floats, place: int, width: int) -> tuple[int, int]:
    """Return the block with the smallest gradient within a fall, and the one with the largest gradient behind that block."""
    narrow = place + int(np.argmin(norms[place : place + width]))
    return narrow, narrow + 1 + int(np.argmax(norms[narrow + 1 : place + width + 1]))


def _thinnest(sizes: Series, block: str, step: int, table: TensorTable) -> tuple[str, float] | None:
    """Return the norm parameter of a block that is smallest against its namesakes, and how small; None where it has none."""
    row = int(np.searchsorted(sizes.steps, step, side="right")) - 1
    roles = table.roles(sizes.labels)
    relative_norms: dict[str, float] = {}
    for place, name in enumerate(sizes.labels if row >= 0 else ()):
        if table.kind(name) != "norm" or not (name.startswith(f"{block}.") or table.block(name) == block):
            continue
        alike = [other for other, role in enumerate(roles) if role == roles[place] and other != place]
        known = sizes.values[row, alike]
        usual = median(known[~np.isnan(known)])
        if usual > 0 and np.isfinite(sizes.values[row, place]):
            relative_norms[name] = float(sizes.values[row, place]) / usual
    return min(relative_norms.items(), key=lambda item: item[1], default=None)
