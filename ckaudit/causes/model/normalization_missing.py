"""Nothing norms the stream."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.activations import activation_rms, residual_rms
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of


@cause(
    prior=-1.0,
    explains=[exploding_gradient, activation_drift, nonfinite_values],
    follows=[
        dead_parameter,
        frequent_clipping,
        logit_growth,
        loss_not_falling,
        loss_spike,
        uniform_heads,
        update_out_of_band,
        vanishing_gradient,
        weights_grow,
    ],
    wants=[residual_rms, activation_rms, FACTS],
    knob="Norm what enters attention and MLP of every block, and the head; then lower the initial scale of what blocks add.",
    inspect="Root mean square of the stream behind each block, at the first checkpoint of the incident.",
    runbook="Nothing to save where it began early: put the norms in, restart, and compare the stream behind the blocks.",
)
def normalization_missing(
    findings: Findings,
    stream: Series | None,
    outputs: Series | None,
    facts: Manifest | None,
    *,
    beyond: float = 3.0,
    lead: int = 20,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Nothing norms the stream, so that activations grow from block to block.

    A block that reads a normalized stream adds an amount that does not depend on the stream's size, so that L blocks make the
    stream about L times as large; `beyond` times L leaves room for that. Without norms each block multiplies. The stream is
    looked at around the incident, from `lead` steps before its start to its end. Weights are starting values, to be fitted on
    runs of known truth.
    """
    first = findings.first(exploding_gradient, activation_drift, nonfinite_values)
    if first is None:
        return
    if stream is not None and (growth := _growth(stream, (first.first_step or 0) - lead, first.last_step)) is not None:
        ratio, step, blocks = growth
        if ratio > beyond * blocks:
            each = ratio ** (1 / (blocks - 1))
            yield supports(
                strong, f"at step {step} the stream grows {each:.1f}x at every block, {ratio:.0f}x in all", stream.name
            )
        else:
            yield contradicts(strong, f"the stream grows no more than {ratio:.2g}x over {blocks} blocks", stream.name)
    else:
        yield contradicts(strong, "the size of the stream behind each block was not recorded", first)
    if jump := findings.before((first.first_step or 0) + 1).first(weights_jump):
        yield contradicts(strong, f"the weights jumped before: {jump.message}", jump)
    named = (*(outputs.labels if outputs is not None else ()), *(facts.tensors if facts and facts.tensors else ()))
    if not named:
        return
    table = table_of(facts)
    norms = [name for name in named if table.kind(name) == "norm" or "norm" in name.lower()]
    if norms:
        yield contradicts(strong, f"there are norms: {norms[0]}", "run.json")
    elif any(table.facts[name].shape for name in named if name in table.facts):  # names out of a log are no list of all
        yield supports(medium, f"none of {len(named)} tensors and modules is a norm", "run.json")


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
