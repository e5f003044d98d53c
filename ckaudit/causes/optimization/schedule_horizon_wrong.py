"""The schedule ends long before the training does."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.rate_course import RateFall, known_rate, planned_end, rate_fall
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.run_facts import planned_rate
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[schedule_off_plan, learning_rate_zero],
    follows=[learning_rate_jump, loss_not_falling, uniform_heads, barely_moving, update_out_of_band],
    wants=[learning_rate, FACTS],
    knob="Give the schedule the steps that will be trained: updates, not epochs, micro-batches, or one rank's share.",
    inspect="The learning rate against its plan, and how the scheduler's length is computed.",
    runbook="Go back to the last checkpoint before the rate left its plan, and resume with a schedule of the right length.",
)
def schedule_horizon_wrong(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    *,
    early: float = 0.9,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The schedule ends long before the training does.

    The rate comes down a slope and reaches its lowest value before `early` of the steps. Log odds are first guesses.
    """
    if findings.first(schedule_off_plan, learning_rate_zero) is None:
        return
    steps, values = known_rate(rate)
    fall = rate_fall(steps, values)
    if fall is None:
        if values.size:
            yield contradicts(2 * strong, "the rate never falls", learning_rate.name)
        return
    if not fall.is_smooth:
        yield contradicts(strong, f"the rate falls at once, by {fall.largest_drop:.2g} in one step", learning_rate.name)
    yield from _end(fall, planned_end(facts) or int(steps[-1]), int(steps[-1]), early, strong)
    off = findings.first(schedule_off_plan)
    if off is None or off.worst_step is None or not isinstance(off.value, float) or not isinstance(off.limit, float):
        return
    plan = planned_rate(facts, np.array([off.worst_step]))
    if plan is not None and off.limit == plan[0]:
        if off.value < off.limit:
            yield supports(medium, f"the rate is below its plan, {off.value:.2g} in place of {off.limit:.2g}", off)
        else:
            yield contradicts(strong, f"the rate is above its plan, {off.value:.2g} in place of {off.limit:.2g}", off)


def _end(fall: RateFall, planned: int, last: int, early: float, strong: float) -> Iterator[Evidence]:
    """Judge where the slope ends: before the training does, or with it."""
    if not fall.is_smooth:
        return
    if fall.step < early * min(planned, last):
        yield supports(
            strong,
            f"the rate has come down to its lowest, {fall.lowest:.2g}, by step {fall.step}, and the training goes on "
            f"to step {max(last, planned)}",
            learning_rate.name,
        )
    else:
        yield contradicts(strong, f"the rate falls until step {fall.step}, nearly to the end", learning_rate.name)
