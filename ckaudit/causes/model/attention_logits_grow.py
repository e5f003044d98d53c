"""Query and key weights grow without bound."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.attention import only_queries_and_keys
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.attention import max_attn_logit
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.starved_branch import starved_branch
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of

MAX_UNTRAINED_LOGIT = 10.0
"""A largest logit that begins above this did not grow: in a well scaled head the largest of thousands is 4 or 5 spreads."""

TURNED_BACK = 0.9
"""Share of its peak below which the largest logit has turned back."""


@cause(
    prior=-1.0,
    explains=[logit_growth, weights_grow, entropy_collapse],
    follows=[
        starved_branch,
        activation_drift,
        dead_parameter,
        exploding_gradient,
        frequent_clipping,
        loss_not_falling,
        loss_spike,
        nonfinite_values,
        update_out_of_band,
        vanishing_gradient,
        zero_gradients,
    ],
    wants=[max_attn_logit, FACTS],
    knob="Put a norm on queries and keys, or scale both down where the largest logit passes 100 (QK-clip); then decay them more.",
    inspect="Norm of query and key weights and the largest logit of each head, on one axis of steps.",
    runbook="Stop; scale query and key of the heads named so that logits come below 100, and resume from before the collapse.",
)
def attention_logits_grow(
    findings: Findings,
    logit: Series | None,
    facts: Manifest | None,
    *,
    grown: float = 10.0,
    runaway: float = 1000.0,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Query and key weights grow without bound, so that attention saturates while the loss hardly moves.

    Growth of other matrices, or growth that has stopped, is no sign of this cause:

    - The growth is that of query and key where no matrix of another kind grows.
    - The growth goes on where the largest logit is more than `grown` times the first one and, at the last checkpoint, has not
      turned back below nine tenths of its peak.
    - A largest logit beyond `runaway` (M19) has no bound.
    - Logits over 10 in the first record did not grow.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    course = _course_of(logit)
    has_grown = course is not None and course[1] > grown * course[0]
    growing = findings.of(weights_grow)
    places = [place for finding in growing for place in (finding.where, *finding.also) if place]
    if only_queries_and_keys(places, table_of(facts)):
        yield supports(decisive, f"only queries' and keys' weights grow: {growing[0].message}", growing[0])
    elif places:
        yield contradicts(decisive, f"it is not queries and keys alone: {growing[0].message}", growing[0])
    elif not has_grown and not findings.first(logit_growth):
        yield contradicts(strong, "neither weights nor logits were found to grow", "entropy_collapse")
    onset = findings.first(logit_growth, entropy_collapse, weights_grow)
    if earlier := findings.before(onset.first_step or 0 if onset else 0).of(exploding_gradient, loss_spike, update_out_of_band):
        yield contradicts(strong, f"the run was ill before: {earlier[0].message}", earlier[0])
    if jump := findings.first(weights_jump):
        yield contradicts(strong, f"the weights jumped and did not grow: {jump.message}", jump)
    if course is None:
        return
    start, peak, end = course
    if start > MAX_UNTRAINED_LOGIT:
        yield contradicts(strong, f"the largest logit begins at {start:.3g}: it was large from the first", max_attn_logit.name)
    elif has_grown and end > TURNED_BACK * peak:
        what = f"the largest logit has grown from {start:.2g} to {end:.3g}, and has not turned back"
        yield supports(strong if peak > runaway else medium, what, max_attn_logit.name)
    else:
        yield contradicts(medium, f"the largest logit comes back from {peak:.3g} to {end:.3g}", max_attn_logit.name)


def _course_of(logit: Series | None) -> tuple[float, float, float] | None:
    """Return the largest logit of the first record, of all and of the last; None where none is recorded."""
    if logit is None or not logit.finite.any():
        return None
    largest = np.where(logit.finite, np.abs(logit.values), -np.inf).max(axis=1)[logit.finite.any(axis=1)]  # (T,)
    return float(largest[0]), float(largest.max()), float(largest[-1])
