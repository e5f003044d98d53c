"""The learning rate keeps rising long after the warm-up should be over."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import FOLLOWS
from ckaudit.causes.shared.rate_course import known_rate, warmup_of
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.run.run_facts import planned_rate
from ckaudit.run.series import Floats, Series, Steps

MADE_BY_RATE = (loss_rises, activation_drift)
"""Illnesses that follow from a rate that keeps rising, whatever its plan was."""


@cause(
    prior=-0.5,
    explains=[schedule_off_plan, *MADE_BY_RATE],
    follows=[rule for rule in FOLLOWS if rule not in MADE_BY_RATE],
    wants=[learning_rate, FACTS],
    knob="Tell the schedule how many steps the warm-up has, in the unit in which it is stepped, and what comes after it.",
    inspect="The learning rate against its plan around the planned end of the warm-up.",
    runbook="Keep the checkpoint at the planned end of the warm-up: resume from it with the mended schedule.",
)
def warmup_never_ends(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    *,
    late: float = 2.0,
    min_growth: float = 3.0,
    decisive: float = 4.0,
    strong: float = 2.0,
) -> Iterator[Evidence]:
    """The learning rate keeps rising long after the warm-up should be over.

    A rate that still rises at the end is judged by its plan, or else by what the loss does meanwhile:

    - The rate has risen at nearly every step, or in stairs without a fall, and goes on beyond `late` times the planned warm-up.
    - Without a plan, the rate had come to rest and rises from there to its highest, at the end, by a factor of `min_growth` and
      more. The loss climbs meanwhile: what a model learnt at a third of the rate it loses.
    - Log odds are first guesses.
    """
    off = findings.first(schedule_off_plan)
    steps, values = known_rate(rate)
    if len(values) < 20:
        return
    if off is None:
        yield _beside_a_climb(findings.first(loss_rises), steps, values, warmup_of(facts), min_growth, decisive, strong)
        return
    moves = np.diff(values[steps >= min(off.first_step or 0, steps[-2])])
    rising = float((moves > 0).mean())
    if rising < 0.9 and not ((moves >= 0).all() and moves.any()):
        yield contradicts(decisive, f"the rate rises at {rising:.0%} of the steps only", off)
        return
    warmup = warmup_of(facts)
    if warmup and steps[-1] > late * warmup:
        yield supports(decisive, f"the rate still rises at step {steps[-1]}; the warm-up was to end at step {warmup}", off)
    plan = planned_rate(facts, steps)
    if not warmup and plan is None:
        yield supports(strong, off.message, off)
        beside = _beside_a_climb(findings.first(loss_rises), steps, values, warmup, min_growth, decisive, strong)
        yield from [beside] if beside.weight > 0 else []
    if plan is not None and values[-1] > 1.2 * plan.max():
        yield supports(strong, f"it has come to {values[-1]:.2g}, {values[-1] / plan.max():.3g} times its planned peak", off)


def _beside_a_climb(
    climb: Finding | None, steps: Steps, values: Floats, warmup: int | None, growth: float, decisive: float, strong: float
) -> Evidence:
    """Judge a rate without a plan by how far it rises without a rest, and whether the loss climbs meanwhile."""
    rests = np.flatnonzero(np.diff(values) <= 0)
    if not len(rests):
        return contradicts(
            decisive, "the rate rises from the first step on: this may be the warm-up that was planned", learning_rate.name
        )
    start = int(rests[-1]) + 1
    times = values[-1] / values[start] if values[start] > 0 else np.inf
    is_highest = start < len(values) - 1 and values[-1] >= values.max()
    if not is_highest or climb is None or climb.first_step is None or times < growth or not steps[start] < climb.first_step:
        return contradicts(decisive, "the rate does not rise while the loss climbs", learning_rate.name)
    if warmup is not None and steps[-1] <= warmup:
        return contradicts(decisive, f"the warm-up was to last until step {warmup}", "run.json")
    what = f"the rate rises from {values[start]:.2g} at step {steps[start]} to {values[-1]:.2g}, and the loss climbs meanwhile"
    return supports(1.5 * strong, what, learning_rate.name)
