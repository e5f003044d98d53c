"""Blocks pass no gradient around themselves."""

from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.activations import bounded_functions
from ckaudit.causes.shared.update_size import weights_replaced
from ckaudit.contract.schema.report import Evidence
from ckaudit.contract.schema.tensor_names import block_of
from ckaudit.metrics.activations import activation_max_abs, activation_mean_abs
from ckaudit.metrics.gradients import block_gradient_norm, gradient_norm
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import weight_std
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_alike import weights_alike
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.series import Series

EARLY_STEPS = 30
"""Steps in which a model still has the structure of its initialization and nothing else."""

NO_PATH_RATIO = 1e4
"""A first block that gets so many times less shows that nothing leads around the blocks: at most 900 where blocks add."""


@cause(
    prior=-0.5,
    explains=[vanishing_gradient, loss_not_falling, uniform_heads],
    follows=[
        starved_branch,
        activation_drift,
        barely_moving,
        dead_parameter,
        layer_not_contributing,
        update_out_of_band,
        zero_gradients,
    ],
    wants=[
        block_gradient_norm,
        activation_max_abs,
        activation_mean_abs,
        learning_rate,
        weight_std,
        optimizer_adapts,
        gradient_norm,
    ],
    knob="Check the residual path: that each block adds to its input; then the initial scale and the norm's parameters.",
    inspect="Gradient norm per block at one step, and the size of the activations that enter each block.",
    runbook="Save one checkpoint with activations; on a fixed batch, print the gradient at the input of each block.",
)
def residual_path_broken(
    findings: Findings,
    norm: Series | None,
    largest: Series | None,
    usual: Series | None,
    rate: Series | None,
    std: Series | None,
    adapts: Series | None,
    parts: Series | None,
    *,
    steady: float = 0.5,
    even: float = 10.0,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Blocks pass no signal around themselves, so the gradient decays with depth.

    A structure without a path around its blocks shows in how the gradient falls, and from which step on:

    - The decay is steady where its spread from block to block is below `steady` of its mean.
    - A structure that is broken is so from the start. It is sound where the first block's gradient was within a factor of `even`
      of the last one's in the first 30 steps and at the first record.
    - A first block that comes to get 10,000 times less than the last shows, however the run began, that no path leads around the
      blocks between. Such a path would carry the last block's gradient to the first.
    - In the lab's models whose blocks add to the stream, the first block gets at most 900 times less.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(vanishing_gradient)
    if first is None:
        yield contradicts(decisive, "the gradient does not shrink on its way back", vanishing_gradient.code)
        return
    if norm is not None and (steps := _log_steps(norm, first.first_step)) is not None:
        if steps.min() > 0 and steps.std() < steady * steps.mean():
            yield supports(strong, f"the gradient falls about {np.exp(steps.mean()):.1f}x at every block on its way back", first)
        else:
            yield contradicts(medium, "the gradient falls at one block, not evenly with depth", first)
    if norm is not None and (start := _decay(norm)):
        ratio, at = max(start[:1] + [pair for pair in start if pair[1] <= EARLY_STEPS])
        worst, then = max(start)
        if ratio > even:
            yield supports(medium, f"already at step {at} the first block gets {ratio:.0f}x less than the last", first)
        elif worst <= NO_PATH_RATIO:
            yield contradicts(strong + 1, f"at step {at} the first block still got its share: the structure is sound", first)
        if worst > NO_PATH_RATIO:
            yield supports(
                strong, f"at step {then} the first block gets {worst:.0e}x less: nothing leads around the blocks between", first
            )
    if parts is not None and _are_single_layers(parts.labels):
        yield contradicts(strong + 1, "each block is one layer, and few models lead around single layers", first)
    dead = findings.first(dead_parameter)
    if dead is not None and dead.value == 0:
        yield contradicts(medium, f"{dead.where} gets no gradient at all: something is cut off, not worn down", dead)
    others = [*findings.before((first.first_step or 0) + 1).of(weights_alike, weight_scale_off), *findings.of(weights_shrink)]
    if others:
        weight = decisive if others[0].code == weights_shrink.code else strong
        yield contradicts(weight, f"the weights themselves are ill: {others[0].message}", others[0])
    yield from weights_replaced(rate, std, adapts, first.first_step, strong)
    if largest is not None and usual is not None and (flat := bounded_functions(largest, usual)):
        yield contradicts(medium, f"{flat[0]} works between bounds, where functions are flat", largest.name)


def _are_single_layers(names: Sequence[str], *, min_blocks: int = 3) -> bool:
    """Tell whether blocks are single layers: each tensor is the block's own, as `conv.3.weight`, and not that of a part of it."""
    blocks = {name: block for name in names if (block := block_of(name)) is not None}
    own = all("." not in name[len(block) :].strip("./") for name, block in blocks.items())
    return own and len({*blocks.values()}) >= min_blocks


def _decay(norm: Series) -> list[tuple[float, int]]:
    """Return how many times the last block's norm exceeds the first one's, and the step, where there are three blocks."""
    if norm.values.shape[1] < 3:
        return []
    known = norm.finite.all(axis=1) & (norm.values > 0).all(axis=1)
    ratios = norm.values[known, -1] / norm.values[known, 0]
    return list(zip(ratios.tolist(), norm.steps[known].tolist(), strict=True))


def _log_steps(norm: Series, step: int | None) -> np.ndarray | None:
    """Return the log ratio of each block's norm to the one before it, at a step."""
    row = int(np.searchsorted(norm.steps, step if step is not None else 0))
    values = norm.values[min(row, len(norm.values) - 1)]
    if len(values) < 3 or not (np.isfinite(values) & (values > 0)).all():
        return None
    return np.asarray(np.diff(np.log(values)))
