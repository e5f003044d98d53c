"""SCHED001: the learning rate is zero while the training goes on."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.run_facts import planned_rate
from ckaudit.run.series import Series, single
from ckaudit.run.spans import spans


@rule("SCHED001", severity="sev1", needs=[learning_rate], wants=[FACTS], unit="1")
def learning_rate_zero(
    rate: Series,
    facts: Manifest | None,
    *,
    zero_share: float = 1e-6,
    min_points: int = 10,
    min_share: float = 0.02,
    max_planned_share: float = 0.25,
) -> Iterator[Hit | Skip]:
    """The learning rate is zero while the training goes on.

    ## What it checks
    Whether the largest rate of all parameter groups is below `zero_share` of the highest rate seen or planned, for `min_points`
    points in a row and `min_share` of all points. A cosine to a hundredth, or a line to zero, comes near that in its last steps
    only; trainproof's ZERO-LR needs the same rate throughout.
    ## Why it matters
    Nothing is learnt any more, at full price: the schedule was given too few steps, or its rate never reaches the optimizer.
    ## False alarms
    Steps for which run.json plans such a rate are left out, as is a warm-up that begins at zero. A plan that stays at zero for
    `max_planned_share` of the steps is no excuse: a scheduler that was given too few steps plans just that.
    """
    yield from too_few(rate, min_points)
    largest = np.where(rate.finite, rate.values, -np.inf).max(axis=1, initial=-np.inf)
    known = np.isfinite(largest)
    if known.sum() < min_points:
        return
    steps, values = (rate.steps, largest) if known.all() else (rate.steps[known], largest[known])
    values = np.abs(values, out=values)
    plan = planned_rate(facts, steps)
    peak = max(float(values.max()), 0.0 if plan is None else float(plan.max()))
    series = single("learning rate", "1", steps, values)
    idle = values <= zero_share * peak
    if plan is not None:
        rests = plan <= zero_share * peak
        idle &= ~rests | ((np.maximum.accumulate(plan) > zero_share * peak) & (rests.mean() > max_planned_share))
    for span in spans(series, idle[:, None], min_points=max(min_points, int(min_share * len(steps)))):
        yield Hit.over(
            span,
            "sev1",
            "the learning rate is {value:.2g}, and the training goes on: nothing is learnt in these steps",
            badness=-series.values,
            value=series.values,
            limit=zero_share * peak,
        )
