"""Gradients are computed but the optimizer's step is not taken."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, places_of, supports
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.progress import steps_seen
from ckaudit.metrics.weights import update_norm
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.precision.overflow import overflow
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series

NOTHING_UPDATED = "no tensor is updated any more, though there are gradients"


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[skipped_updates, barely_moving],
    follows=[frequent_clipping, loss_not_falling, uniform_heads, update_out_of_band],
    wants=[update_norm, gradient_norm, steps_seen, learning_rate],
    knob="Call the optimizer's step at every attempt: look for a condition, an accumulation count or a guard around it.",
    inspect="The branch around optimizer.step(), and the count of applied updates beside the count of steps.",
    runbook="Stop: steps are paid for and not taken. Go on from the last step that was applied; the weights are still good.",
)
def updates_not_applied(
    findings: Findings,
    moved: Series | None,
    gradient: Series | None,
    count: Series | None,
    rate: Series | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Gradients are computed but the optimizer's step is not taken, always or in part of the steps.

    All tensors then stand still at once, and the count of updates falls behind the count of steps. Overflows, gradients that are
    not finite and a learning rate of zero leave out updates too, and speak against this cause. Log odds are on the common scale
    (`causes/cause.py`).
    """
    skipped = findings.first(skipped_updates)
    if skipped is not None:
        yield supports(strong, skipped.message, skipped)
    elif count is not None:
        yield contradicts(strong, "the optimizer counts its updates, and none is missing", count.name)
    if nothing := finding_of_no_updates(findings, moved, gradient):
        yield supports(strong, NOTHING_UPDATED, nothing)
        if rate is None:
            yield contradicts(medium, "no learning rate is recorded, and a rate of zero would look the same", nothing)
    elif (still := findings.first(barely_moving)) is not None:
        yield contradicts(strong, "only a part of the tensors stands still", still)
    if other := findings.first(overflow):
        yield contradicts(decisive, "the loss scaler skips updates because gradients overflow", other)
    elif other := findings.first(nonfinite_values):
        yield contradicts(strong, f"there is a reason to skip updates: {other.message}", other)
    elif skipped is not None:
        yield supports(medium, "nothing overflows and all values are finite: there was no reason to skip", skipped)
    if zero := findings.first(learning_rate_zero):
        yield contradicts(decisive, "the learning rate is zero: steps are taken, of no length", zero)


def finding_of_no_updates(findings: Findings, moved: Series | None, gradient: Series | None) -> Finding | None:
    """Return the finding that no tensor is updated any more though there are gradients; None where some are, or it is not known.

    Args:
        findings: What was found.
        moved: Norm of each tensor's update, where it was recorded.
        gradient: Norm of each tensor's gradient, where it was recorded.
    """
    names = _with_gradient(gradient) if gradient is not None else set(moved.labels) if moved is not None else set()
    still = [finding for finding in findings.of(barely_moving) if finding.severity == "sev1" or finding.value == 0]
    if not still or not names:
        return None
    # A step that is not taken moves nothing at all; one that hardly moves anything was taken.
    updated = names - places_of(still) if moved is None else names & _updated(moved, still[0].first_step or 0)
    return None if updated else still[0]


def _updated(moved: Series, since: int) -> set[str]:
    """Return the tensors that an update has moved since a step."""
    moves = (moved.finite & (moved.values > 0))[moved.steps >= since].any(axis=0)
    return {moved.labels[column] for column in np.flatnonzero(moves)}


def _with_gradient(gradient: Series) -> set[str]:
    """Return the tensors that have a gradient which is not zero at some checkpoint."""
    columns = np.flatnonzero((gradient.finite & (gradient.values > 0)).any(axis=0))
    return {gradient.labels[column] for column in columns}
