"""The learning rate that is applied is zero."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.code.updates_not_applied import NOTHING_UPDATED, finding_of_no_updates
from ckaudit.causes.shared.rate_course import known_rate, rate_fall
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_norm, update_to_weight_global
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.updates.barely_moving import HALF_SPACING, barely_moving
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[learning_rate_zero, barely_moving],
    follows=[schedule_off_plan, loss_not_falling, uniform_heads, learning_rate_jump, update_out_of_band],
    wants=[learning_rate, update_to_weight_global, update_norm, gradient_norm],
    knob="Print the rate of every parameter group just before optimizer.step(), and find what writes the zero.",
    inspect="The learning rate around the first step at which it is zero: the scheduler, a restored state, a lambda, a group.",
    runbook="Stop: nothing is learnt. Keep the last checkpoint with a rate, mend the schedule, and go on from that checkpoint.",
)
def learning_rate_is_zero(
    findings: Findings,
    rate: Series | None,
    update: Series | None,
    moved: Series | None,
    gradient: Series | None,
    *,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The learning rate that is applied is zero.

    How the rate came to be zero tells whether it was set so:

    - A rate that never was above zero, or falls to it in one step, was set so. A rate that comes down a slope is a schedule at
      its end.
    - An update that is smaller than the last digit of a weight leaves the weight where it is.
    - Where nobody recorded the rate, tensors that all stand still may be its doing, or that of updates which are left out.
    - Log odds are first guesses.
    """
    first = findings.first(learning_rate_zero)
    if first is None or first.first_step is None:
        if rate is None and (nothing := finding_of_no_updates(findings, moved, gradient)):
            yield supports(medium / 2, f"{NOTHING_UPDATED}, and no learning rate is recorded", nothing)
        else:
            yield contradicts(2 * strong, "the learning rate is not zero, or not all tensors stand still", learning_rate.name)
        return
    steps, values = known_rate(rate)
    if fall := rate_fall(steps, values):
        if fall.is_smooth:
            yield contradicts(strong, f"the rate comes down to zero step by step until step {fall.step}: a schedule ended", first)
        else:
            yield supports(
                strong, f"the rate falls from {fall.highest:.2g} to zero, {fall.largest_drop:.2g} of it at once", first
            )
    elif values.size:
        yield supports(strong, "the rate was never above zero", first)
    known = update.only(lambda _: True) if update is not None else None
    if known is not None and (rows := (known.steps >= first.first_step) & known.finite[:, 0]).any():
        largest = float(known.values[rows].max())
        if largest < HALF_SPACING:
            yield supports(medium, "the weights stand still with it: the logged rate is the one applied", known.name)
        else:
            yield contradicts(
                strong, f"yet an update changes {largest:.2g} of the weights: the log shows another rate", known.name
            )
