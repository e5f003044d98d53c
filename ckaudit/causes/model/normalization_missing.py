"""Nothing norms the stream."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.activations import activation_rms, residual_rms
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable, table_of

STREAM_GROWS = (exploding_gradient, activation_drift, nonfinite_values)
"""Illnesses that follow from a stream that grows from block to block."""

STREAM_FADES = (loss_not_falling, uniform_heads, vanishing_gradient, starved_branch, dead_parameter)
"""Illnesses that follow from a stream that is small from the start: nothing enlarges it, and logits tell nothing."""


@cause(
    prior=-1.0,
    explains=[*STREAM_GROWS, *STREAM_FADES],
    follows=[barely_moving, frequent_clipping, logit_growth, loss_spike, update_out_of_band, weights_grow],
    wants=[residual_rms, activation_rms, weight_rms, FACTS],
    knob="Norm what enters attention and MLP of every block, and the head; then lower the initial scale of what blocks add.",
    inspect="Root mean square of the stream behind each block, at the first checkpoint of the incident.",
    runbook="Nothing to save where it began early: put the norms in, restart, and compare the stream behind the blocks.",
)
def normalization_missing(
    findings: Findings,
    stream: Series | None,
    outputs: Series | None,
    weights: Series | None,
    facts: Manifest | None,
    *,
    beyond: float = 3.0,
    lead: int = 20,
    max_faint_rms: float = 0.1,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Nothing norms the stream, so that activations grow from block to block, or stay as small as they began.

    A norm bounds how fast the stream grows, and how small it can be:

    - A block that reads a normalized stream adds an amount that does not depend on the stream's size, so that L blocks make the
      stream about L times as large. `beyond` times L leaves room for that. Without norms each block multiplies.
    - The stream is looked at around the incident, from `lead` steps before its start to its end.
    - Where weights begin small, a stream without norms stays small. What a matrix puts out, over its size and the root of its
      inputs, is the size of what enters it, and a norm makes that one.
    - Where what enters is below `max_faint_rms` in every matrix of blocks with attention, there is no norm.
    - A norm behind the embedding, or before the head, bounds nothing between the blocks. A module that is called a norm, has no
      weights, and does not put out values of size one is a placeholder.
    - Log odds are first guesses.
    """
    first = findings.first(*STREAM_GROWS)
    named = (*(outputs.labels if outputs is not None else ()), *(facts.tensors if facts and facts.tensors else ()))
    table = table_of(facts)
    norms = _norms(outputs, table)
    entering = None if norms else _entering(outputs, weights, table)
    is_faint = entering is not None and entering < max_faint_rms
    if is_faint and findings.first(*STREAM_GROWS, *STREAM_FADES):
        what = f"what enters the matrices of its blocks is {entering:.2g} at most, and none of their parts is a norm"
        yield supports(decisive, what, activation_rms.name)
        return
    if first is None:
        yield contradicts(decisive, "nothing grows, and what enters each block is not known to be small", activation_rms.name)
        return
    if stream is not None and (growth := _growth(stream, (first.first_step or 0) - lead, first.last_step)) is not None:
        yield _by_growth(stream, growth, beyond, strong)
    else:
        yield contradicts(strong, "the size of the stream behind each block was not recorded", first)
    if jump := findings.before((first.first_step or 0) + 1).first(weights_jump):
        yield contradicts(strong, f"the weights jumped before: {jump.message}", jump)
    if norms:
        yield contradicts(strong, f"there are norms: {norms[0].removesuffix('.weight')}", "run.json")
    elif any(table.facts[name].shape for name in named if name in table.facts):  # names out of a log are no list of all
        yield supports(medium, f"none of {len(named)} tensors and modules norms the stream between blocks", "run.json")


def _norms(outputs: Series | None, table: TensorTable, *, near_one: float = 2.0) -> list[str]:
    """Return the tensors and modules that norm the stream between blocks; those of the whole model if no block is known."""
    norms = [name for name in table.facts if table.kind(name) == "norm" or "norm" in name.lower()]
    with_weights = {table.module(name) for name in table.facts}
    sizes = {} if outputs is None else _first_values(outputs)
    for module, size in sizes.items():
        is_called_norm = table.kind(module) == "norm" or "norm" in module.lower()
        if is_called_norm and (module in with_weights or 1 / near_one <= size <= near_one):
            norms.append(f"{module}.weight")  # as a tensor of it would be called
    has_blocks = any(table.block(name) is not None for name in (*table.facts, *sizes))
    return [name for name in norms if table.block(name) is not None] if has_blocks else norms


def _entering(outputs: Series | None, weights: Series | None, table: TensorTable) -> float | None:
    """Return the largest root mean square of the input to a matrix of a block; None where it is unknown.

    Only models with attention count: convolutions and recurrent cells often have no norm. The entries of a matrix and those of
    its input are assumed to be independent, as they are where training begins.
    """
    if outputs is None or weights is None or not any(table.kind(name) == "attention" for name in weights.labels):
        return None
    put_out, drawn = _first_values(outputs), _first_values(weights)
    sizes = []
    for name, size in drawn.items():
        shape = table.facts[name].shape if table.is_matrix(name) and table.block(name) is not None else UNSET
        if shape is not UNSET and size > 0 and table.module(name) in put_out:
            sizes.append(put_out[table.module(name)] / (size * math.sqrt(shape[1])))
    return max(sizes, default=None)


def _first_values(series: Series) -> dict[str, float]:
    """Return the first finite value of each column that has any."""
    columns = zip(series.labels, series.values.T, series.finite.T, strict=True)
    return {label: float(values[known][0]) for label, values, known in columns if known.any()}


def _by_growth(stream: Series, growth: tuple[float, int, int], beyond: float, strong: float) -> Evidence:
    """Judge by how far the stream grows from the first block to the last."""
    ratio, step, blocks = growth
    if ratio <= beyond * blocks:
        return contradicts(strong, f"the stream grows no more than {ratio:.2g}x over {blocks} blocks", stream.name)
    growth_per_block = ratio ** (1 / (blocks - 1))
    return supports(
        strong, f"at step {step} the stream grows {growth_per_block:.1f}x at every block, {ratio:.0f}x in all", stream.name
    )


def _growth(stream: Series, first: int, last: int | None) -> tuple[float, int, int] | None:
    """Return the largest ratio of the last block's stream to the first one's, its step, and the number of blocks."""
    blocks = len(stream.labels)
    rows = np.flatnonzero((stream.steps >= first) & (stream.steps <= (last if last is not None else stream.steps[-1])))
    known = rows[stream.finite[rows].all(axis=1) & (stream.values[rows, 0] > 0)] if blocks > 1 else rows[:0]
    if not len(known):
        return None
    ratio = stream.values[known, -1] / stream.values[known, 0]
    worst = int(np.argmax(ratio))
    return float(ratio[worst]), int(stream.steps[known[worst]]), blocks
