"""SCHED001: the learning rate is zero while the training goes on."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.robust import least_decimal_step
from ckaudit.run.run_facts import planned_rate
from ckaudit.run.series import Floats, Series, single
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
    Some rates of zero are planned, or none:

    - Steps for which run.json plans such a rate are left out, as is a warm-up that begins at zero.
    - A plan that stays at zero for `max_planned_share` of the steps is no excuse: a scheduler that was given too few steps plans
      just that.
    - A log that writes its rates with few decimals shows a small one as 0: where rates fall to a twentieth of the highest, and
      the smallest above zero has a single digit left, nothing is judged.
    """
    yield from too_few(rate, min_points)
    largest = np.where(rate.finite, rate.values, -np.inf).max(axis=1, initial=-np.inf)
    known = np.isfinite(largest)
    if known.sum() < min_points:
        return
    steps, values = (rate.steps, largest) if known.all() else (rate.steps[known], largest[known])
    values = np.abs(values, out=values)
    if _may_be_rounded_to_zero(values):
        return
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


def _may_be_rounded_to_zero(rates: Floats, *, min_fall: float = 20.0) -> bool:
    """Tell whether rates fall to a single digit of the decimals that they are written with: the next is written as zero.

    >>> _may_be_rounded_to_zero(np.array([0.01, 0.001, 0.00001, 0.0])), _may_be_rounded_to_zero(np.array([0.0005, 0.0]))
    (True, False)
    >>> _may_be_rounded_to_zero(np.array([0.01, 0.00025, 0.0])), _may_be_rounded_to_zero(np.array([0.1, 1e-4 / 3, 0.0]))
    (False, False)
    """
    known = rates[rates > 0]
    if not len(known) or len(known) == len(rates) or known.max() < min_fall * known.min():
        return False
    return bool(known.min() < 9.5 * least_decimal_step(known))
