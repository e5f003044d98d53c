"""SCHED002: the learning rate is not the planned one."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.manifest import Manifest
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.planned_rate import planned_range, planned_rate
from ckaudit.run.series import Floats, Series, Steps, single
from ckaudit.run.spans import spans


@rule("SCHED002", severity="sev2", needs=[learning_rate, FACTS], facts=[["warmup_steps", "planned_learning_rate"]], unit="1")
def schedule_off_plan(
    rate: Series, facts: Manifest, *, between: float = 0.1, outside: float = 0.02, late: float = 2.0, grown: float = 1.2,
    min_points: int = 5,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """The learning rate is not the planned one.

    ## What it checks
    The learning rate against the plan in run.json, at `min_points` points in a row: off by more than `between` of the planned
    peak from the line between two planned steps, or by `outside` of it from both of them. Without a plan, whether the rate
    has grown by `grown` since the end of the planned warm-up and still grows at `late` times its length (M06, M07).
    ## Why it matters
    A schedule that is never stepped, ends too early or warms up for ever costs a whole run, and the loss looks plausible.
    ## False alarms
    The plan is a few points, and between them a curve may bend: the lab's healthy schedules leave the line by 5 % of the
    peak at most. Only the first group of several is compared.
    """
    known = np.flatnonzero(rate.finite[:, 0]) if rate.labels else np.empty(0, np.int64)
    steps, values = rate.steps[known], rate.values[known, 0]
    if len(steps) < min_points:
        yield Skip("too_few_points", f"{len(steps)} points of the learning rate; {min_points} are needed")
        return
    plan, ends = planned_rate(facts, steps), planned_range(facts, steps)
    if plan is None or ends is None:
        yield from _endless_warmup(steps, values, facts, late, grown)
        return
    peak = float(np.abs(plan).max())
    off = np.abs(values - plan)
    beyond = np.maximum(ends[0] - values, values - ends[1])
    series = single("learning rate", "1", steps, values)
    wrong = (off > between * peak) | (beyond > outside * peak)
    for span in spans(series, wrong[:, None], min_points=min_points):
        worst = span.rows[int(np.argmax(off[span.rows]))]
        yield Hit(
            severity="sev2", where="learning rate", first=span.first, last=span.last, worst=int(steps[worst]), points=span.points,
            value=float(values[worst]), limit=float(plan[worst]),
            message="the learning rate is {value:.3g} at step {worst}, where {limit:.3g} was planned",
        )  # fmt: skip


def _endless_warmup(steps: Steps, values: Floats, facts: Manifest, late: float, grown: float) -> Iterator[Hit | Skip]:
    """Yield the rate that still grows long after the planned warm-up; a skip where not even its length was planned."""
    if facts.warmup_steps is UNSET:
        yield Skip("not_recorded", "needs warmup_steps")
        return
    end = facts.warmup_steps
    after = np.flatnonzero(steps > late * end)
    done = np.flatnonzero(steps <= end)
    if not end or not len(after) or not len(done):
        return
    first, last = int(after[0]), int(after[-1])
    if values[last] > grown * values[done[-1]] and (np.diff(values[done[-1] :]) > 0).all():
        yield Hit(
            severity="sev2", where="learning rate", first=int(steps[first]), last=int(steps[last]), worst=int(steps[last]),
            value=float(values[last]), limit=float(values[done[-1]]), points=len(after),
            message=f"the learning rate still grows, to {{value:.3g}}; the warm-up was to end at step {end}, with {{limit:.3g}}",
        )  # fmt: skip
