"""Attention logits have outgrown their scale."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.attention import logits_over_expected
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.attention import max_attn_logit
from ckaudit.metrics.weights import update_to_weight_global, weight_std
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

EARLY_STEPS = 20
"""Steps in which logits are what the initial weights make them."""

OVER_ITS_WEIGHTS = 20.0
"""A logit so many times as large as its weights make it shows that the scale of 1/sqrt(d) is missing."""


@cause(
    prior=-0.5,
    explains=[entropy_collapse, logit_growth],
    follows=[starved_branch, exploding_gradient, frequent_clipping, loss_not_falling, vanishing_gradient],
    wants=[max_attn_logit, update_to_weight_global, weight_std, FACTS],
    knob="Check the 1/sqrt(d) scale and the QK-norm path; then the initial scale of query and key, then the learning rate.",
    inspect="Entropy of each head over time, largest logit, and the sampled QK grids of the layer named.",
    runbook="Save the checkpoint before the collapse; cap the logits (QK-clip) and resume from it on the same batches.",
)
def saturated_attention(
    findings: Findings,
    logit: Series | None,
    update: Series | None,
    std: Series | None,
    facts: Manifest | None,
    *,
    cap: float = 100.0,
    hot: float = 50.0,
    untrained: float = 10.0,
    large_update: float = 0.03,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Attention logits have outgrown their scale, so softmax saturates.

    Logits that are too large, early or late, saturate the softmax:

    - A logit of 100 (`cap`) is where Kimi K2 clips, `hot` is where softmax begins to saturate.
    - In the first 20 steps the logits of a well scaled head are about as large as its weights make them: 4 or 5 spreads for the
      largest of thousands.
    - Early logits above `untrained`, or more than twenty times as large as the weights make them, mean that the scale is missing.
    - Updates above `large_update` of the weights change the whole model, not attention alone.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(entropy_collapse, logit_growth)
    if first is None:
        return
    collapsed = [finding for finding in findings.of(entropy_collapse) if finding.severity == "sev1"]
    if collapsed and (logit is None or not logit.finite.any()):
        yield supports(medium, f"only large logits make a softmax so sharp: {collapsed[0].message}", collapsed[0])
    if logit is not None and logit.finite.any():
        yield from _logits(logit, cap, hot, medium)
        if int(logit.steps[0]) <= EARLY_STEPS:
            over = logits_over_expected(logit, std, table_of(facts)) if std is not None else None
            yield from _start(logit, over, untrained, strong)
    yield from _ill_before(findings, first.first_step or 0, strong)
    moved = update.until(first.first_step or 0).values if update is not None else np.empty(0)
    moved = moved[np.isfinite(moved)]
    if moved.size and float(moved.max()) > large_update:
        yield contradicts(
            strong,
            f"all weights moved fast until then, {moved.max():.2g} of them at an update, not the attention alone",
            update_to_weight_global.name,
        )
    elif moved.size:
        yield supports(
            medium / 2,
            f"until then updates are of ordinary size, at most {moved.max():.2g} of the weights",
            update_to_weight_global.name,
        )


def _logits(logit: Series, cap: float, hot: float, weight: float) -> Iterator[Evidence]:
    peak = float(np.abs(logit.values[logit.finite]).max())
    if peak > cap:
        yield supports(weight, f"the largest attention logit reaches {peak:.3g}; {cap:.0f} is where others clip it", logit.name)
    elif peak < hot:
        yield contradicts(weight, f"the largest attention logit stays at {peak:.3g}", logit.name)


def _start(logit: Series, over: float | None, untrained: float, weight: float) -> Iterator[Evidence]:
    row = np.abs(logit.values[0][logit.finite[0]])
    step, largest = int(logit.steps[0]), float(row.max()) if row.size else 0.0
    if over is not None and over > OVER_ITS_WEIGHTS:
        yield supports(
            weight,
            f"at step {step} the largest logit is {over:.0f} times what query and key give by the size of their weights; "
            "5 is usual",
            logit.name,
        )
    elif largest > untrained:
        yield supports(
            weight, f"at step {step} the largest logit is {largest:.3g} already; untrained heads have about 1", logit.name
        )
    else:
        yield contradicts(
            weight / 2, f"at step {step} the largest logit is an ordinary {largest:.2g}: the scale was right", logit.name
        )


def _ill_before(findings: Findings, step: int, weight: float) -> Iterator[Evidence]:
    earlier = findings.before(step + 1)
    if ill := earlier.of(weights_jump, weight_scale_off, initial_loss_off, update_out_of_band, repeated_batch):
        yield contradicts(weight + 1, f"something else was wrong before: {ill[0].message}", ill[0])
    if grown := findings.first(weights_grow):
        yield contradicts(weight, f"the weights themselves grow, and logits with them: {grown.message}", grown)
