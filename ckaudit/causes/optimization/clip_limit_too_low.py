"""The clipping limit lies far below the gradient's usual size."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.shared.gradients import LargestShare, coefficient_without, largest_share
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import grad_global_norm, gradient_share
from ckaudit.metrics.optimizer import clip_coefficient
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.updates.updates_held_back import updates_held_back
from ckaudit.run.medians import median
from ckaudit.run.series import Series, at


@cause(
    prior=-1.0,
    good_checkpoint="newest",
    explains=[frequent_clipping, barely_moving, uniform_heads],
    follows=[loss_not_falling, update_out_of_band, updates_held_back],
    wants=[grad_global_norm, gradient_share, clip_coefficient],
    knob="Raise the limit to the 95th percentile of the last thousand gradient norms, or scale the loss as the limit expects.",
    inspect="The gradient norm and the limit on one axis; whether the loss is a sum or a mean over tokens.",
    runbook="Nothing is broken: change the limit at the next resume, and compare the size of the updates before and after.",
)
def clip_limit_too_low(
    findings: Findings,
    norm: Series | None,
    share: Series | None,
    left: Series | None,
    *,
    steady: float = 10.0,
    out_of_place: float = 0.03,
    warmup: int = 100,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """The clipping limit lies far below the gradient's usual size, which is steady.

    The gradient norm is steady where its 95th percentile is below `steady` times its 5th. The first `warmup` steps are left out,
    or the first half of a shorter run. A tensor with more than half of the squared norm is another cause, unless clipping would
    leave less than `out_of_place` of the gradient without it. Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = findings.first(frequent_clipping)
    if first is None:
        yield contradicts(2 * strong, "clipping does not take most of the gradient away at nearly every step", "CLIP001")
        return
    if norm is not None and len(norm.steps):
        warmup = min(warmup, int(norm.steps[-1]) // 2)
    late = norm.values[norm.steps > warmup] if norm is not None else np.empty(0)
    late = late[np.isfinite(late)]
    if late.size:
        low, middle, high = np.percentile(late, [5, 50, 95])
        if high < steady * low:
            yield supports(
                strong,
                f"the gradient norm is steady around {middle:.2g}: the limit is out of place, not the gradient",
                norm.name if norm else None,
            )
            yield from _limit(norm, left, warmup, float(high))
        else:
            yield contradicts(medium, f"the gradient norm wanders from {low:.2g} to {high:.2g}", norm.name if norm else None)
    if exploding := findings.first(exploding_gradient):
        yield contradicts(strong, "the gradient explodes", exploding)
    if earlier := findings.before(first.first_step or 0).of(loss_spike, token_drift, weights_jump, seam_jump):
        yield contradicts(medium, f"something came first: {earlier[0].message}", earlier[0])
    if off := findings.first(initial_loss_off):
        yield contradicts(strong, f"the loss itself is off from the start: {off.message}", off)
    if share is not None and (largest := largest_share(share, after=warmup)) is not None:
        yield from _by_share(largest, coefficient_without(left, largest), out_of_place, 2 * strong, medium)


def _by_share(
    largest: LargestShare, without: float | None, out_of_place: float, strong: float, medium: float
) -> Iterator[Evidence]:
    """Judge by the tensor with the largest share, and by what clipping would leave without it."""
    if largest.is_majority and without is not None and without < out_of_place:
        yield supports(medium, f"without {largest.tensor}, too, clipping would leave {without:.2g} of it", clip_coefficient.name)
    elif largest.is_majority:
        what = f"{largest.tensor} makes up {largest.share:.0%} of the squared norm"
        yield contradicts(strong, what, gradient_share.name)
    else:
        what = f"the median share of no tensor in the squared norm is above {largest.share:.0%}"
        yield supports(medium, what, gradient_share.name)


def _limit(norm: Series | None, left: Series | None, warmup: int, high: float) -> Iterator[Advice]:
    """Advise to raise the limit: from where recorded clip coefficients show it to be, to the 95th percentile of the norms."""
    if norm is None or left is None:
        return
    limits = at(left, norm.steps).values[:, :1] * norm.values
    known = limits[np.isfinite(limits) & (norm.steps > warmup)[:, None]]
    if known.size:
        yield Advice(
            f"Raise the limit of {median(known):.2g} to about {high:.2g}, the 95th percentile of the gradient norms, or scale "
            "the loss as the limit expects."
        )
