"""The learning rate keeps rising long after the warm-up should be over."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import FOLLOWS
from ckaudit.causes.shared.rate_course import known_rate, warmup_of
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.run.run_facts import planned_rate
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[schedule_off_plan],
    follows=FOLLOWS,
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
    decisive: float = 4.0,
    strong: float = 2.0,
) -> Iterator[Evidence]:
    """The learning rate keeps rising long after the warm-up should be over.

    The rate is at its highest at the end, has risen at nearly every step, and goes on beyond `late` times the planned warm-up.
    Weights are starting values.
    """
    off = findings.first(schedule_off_plan)
    steps, values = known_rate(rate)
    if off is None or len(values) < 20:
        return
    rising = float((np.diff(values) > 0).mean())
    if rising < 0.9:
        yield contradicts(decisive, f"the rate rises at {rising:.0%} of the steps only", off)
        return
    warmup = warmup_of(facts)
    if warmup and steps[-1] > late * warmup:
        yield supports(decisive, f"the rate still rises at step {steps[-1]}; the warm-up was to end at step {warmup}", off)
    plan = planned_rate(facts, steps)
    if not warmup and plan is None:
        yield supports(strong, off.message, off)
    if plan is not None and values[-1] > 1.2 * plan.max():
        yield supports(strong, f"it has come to {values[-1]:.2g}, {values[-1] / plan.max():.3g} times its planned peak", off)
