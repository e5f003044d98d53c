"""The schedule is never advanced, so that the learning rate stays where it was."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.rate_course import constant_since, known_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.attention.logit_growth import logit_growth
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.weights.weights_grow import weights_grow
from ckaudit.run.run_facts import planned_rate
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[schedule_off_plan],
    follows=[
        update_out_of_band,
        uniform_heads,
        loss_not_falling,
        barely_moving,
        learning_rate_jump,
        logit_growth,
        loss_spike,
        entropy_collapse,
        exploding_gradient,
        weights_grow,
        activation_drift,
    ],
    wants=[learning_rate, FACTS],
    knob="Call scheduler.step() once after every optimizer.step(), and see that the scheduler holds this very optimizer.",
    inspect="The learning rate against its plan: the step at which it stops moving, and the loop's code around the scheduler.",
    runbook="Save a checkpoint; a resume with the planned rate mends the rest of the run, not what was learnt until now.",
)
def schedule_not_stepping(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    *,
    moves: float = 1.5,
    strong: float = 3.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The schedule is never advanced, so that the learning rate stays where it was.

    The rate stands still to the end at the highest value that it had, while its plan moves by more than a factor of `moves`. A
    rate that came down before it stood still is at the end of a schedule, not stuck in it. Log odds are first guesses.
    """
    off = findings.first(schedule_off_plan)
    steps, values = known_rate(rate)
    if off is None or not values.size:
        return
    since = constant_since(steps, values)
    if since is None or values[-1] <= 0:
        yield contradicts(strong, "the rate changes from step to step" if since is None else "the rate is zero", off)
        return
    if values[-1] < 0.999 * values.max():
        yield contradicts(strong, f"the rate had come down from {values.max():.2g} before it stood still", off)
        return
    plan = planned_rate(facts, steps[steps >= since])
    span = None if plan is None or plan.min() < 0 else float(plan.max() / max(plan.min(), 1e-12))
    if span is not None and span > moves:
        ends = f"{plan.min():.2g} to {plan.max():.2g}" if plan is not None else ""
        yield supports(strong, f"the rate is {values[-1]:.3g} at every step from {since} on; the plan goes over {ends}", off)
    if np.ptp(values) == 0:
        yield supports(medium, "the rate has not changed once since the first step", off)
