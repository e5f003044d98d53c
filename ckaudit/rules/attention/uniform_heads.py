"""ATTN003: attention heads look at everything alike, long after they should have learnt to choose."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.attention import normalized_attention_entropy, uniform_head_fraction
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.loss_function import explained_share, has_used_inputs
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.falls import fall_accelerates
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import spans

MIN_TRACE = 1e-3
"""Minimum distance from 1 that the normalized entropy of some head reaches in hundreds of updates."""


@rule(
    "ATTN003",
    severity="sev2",
    needs=[uniform_head_fraction],
    wants=[FACTS, train_loss_raw, explained_share, normalized_attention_entropy],
    unit="1",
)
def uniform_heads(
    uniform: Series,
    facts: Manifest | None,
    loss: Series | None,
    explained: Series | None,
    entropy: Series | None,
    *,
    max_uniform_share: float = 0.9,
    min_steps: int = 200,
    min_plan_share: float = 0.75,
    grave_steps: int = 1000,
    min_loss_fall: float = 0.25,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """Attention heads look at everything alike.

    ## What it checks
    The rule takes the share of heads whose entropy is that of looking everywhere alike.

    - The share is over `max_uniform_share` at `min_points` checkpoints in a row up to the last one, after `min_steps` steps and
      `min_plan_share` of the plan (D2.5, D3.1): sev2.
    - In a run of fewer than `grave_steps` steps, the finding is a note where the loss falls by `min_loss_fall` of itself, or
      further in its last third than in its first.
    - The finding is a note, too, in a run of fewer than `grave_steps` steps where 10 % of what a constant guess costs is saved,
      or where no loss is recorded.
    - In such a run the model first learns what follows from the token itself. What follows from other tokens takes hundreds to
      thousands of steps (Olsson et al. 2022).
    - The finding stays sev2 where the entropy of each head is within 0.001 of the largest possible: the logits are scaled to
      nothing.
    - Updates of any size leave more of a trace (healthy trainings of 250 steps and more: 0.027 away at the least, 25 of them).
    ## Why it matters
    Attention is then an average over all tokens: the model has not begun to use its context.
    ## False alarms
    All heads begin like that, and the first choose after some tens to hundreds of steps; a plateau may delay this to half of the
    plan (lab). A few uniform heads are ordinary. A task that needs no context, as one in which every token follows from the one
    before, leaves all heads uniform, and is reported.
    """
    yield from too_few(uniform, min_points)
    end = int(uniform.steps[-1])
    planned = facts.planned_steps if facts else UNSET
    first_judged = min_steps if planned is UNSET else max(min_steps, int(min_plan_share * planned))
    if end <= first_judged:
        yield Skip("too_few_points", f"step {end}; heads are judged after step {first_judged}")
        return
    known = loss.values[loss.finite] if loss is not None else np.empty(0)
    learns = has_used_inputs(explained) or len(known) < 2 or _is_learning(known, min_loss_fall)
    for span in spans(uniform, uniform.values > max_uniform_share, min_points=min_points):
        if span.last == end:
            yield Hit.over(
                span,
                "note" if learns and end < grave_steps and not _are_off(entropy) else "sev2",
                "{value:.0%} of all heads still attend uniformly at the last checkpoint",
                badness=uniform.values,
                limit=max_uniform_share,
            )


def _are_off(entropy: Series | None) -> bool:
    """Tell whether every head attends uniformly to within `MIN_TRACE`, at the last checkpoint that has their entropies."""
    if entropy is None or not entropy.finite.any():
        return False
    last = entropy.values[np.flatnonzero(entropy.finite.any(axis=1))[-1]]
    return bool(1 - np.nanmin(last) < MIN_TRACE)


def _is_learning(losses: Floats, min_fall: float) -> bool:
    """Tell whether the median of the last third is below the first loss by a share of it, or the loss has just begun to fall."""
    if losses[0] <= 0:
        return False
    return 1 - median(losses[-max(1, len(losses) // 3) :]) / losses[0] > min_fall or fall_accelerates(losses)
