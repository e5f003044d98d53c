"""SCHED002: the learning rate is not the planned one."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.run_facts import planned_range, planned_rate
from ckaudit.run.series import Floats, Series, Steps, single
from ckaudit.run.spans import spans

MIN_TIMES_PLANNED, MIN_GROWTH = 2.0, 1.2
"""A warm-up never ends where at twice its planned length the rate still grows, and is a fifth higher than at its planned end."""

POINTS_OF_A_SHAPE = 30
"""Minimum number of points: with fewer, a slope cannot be distinguished from stairs."""


@rule(
    "SCHED002",
    severity="sev1",
    needs=[learning_rate, FACTS],
    wants=[train_loss_raw],
    facts=[["warmup_steps", "planned_learning_rate"]],
    unit="1",
)
def schedule_off_plan(
    rate: Series,
    facts: Manifest,
    loss: Series | None,
    *,
    max_off_between: float = 0.1,
    max_off_outside: float = 0.02,
    min_points: int = 5,
    sev1_ratio: float = 3.0,
    max_beyond_end: float = 0.5,
    min_recent_fall: float = 0.02,
) -> Iterator[Hit | Skip]:
    """The learning rate is not the planned one.

    ## What it checks
    The learning rate against the plan in run.json and, as far as nothing was planned, against what a schedule can be:

    - The rate is off the plan at `min_points` points in a row: by more than `max_off_between` of the planned peak from the line
      between two planned steps, or by more than `max_off_outside` of it from both of them.
    - A rate off the plan that is over `sev1_ratio` times the planned peak is sev1, for after a spike a rate is lowered by three
      to ten times (TRI-2).
    - Without a plan, but with a planned warm-up: at twice its length the rate still grows, at each step or in stairs, and it has
      grown by a fifth since its end (M06, M07).
    - Without either, or with a warm-up that is longer than the run: the rate grows by a fifth in the second half of a training
      that has taken all its planned steps, and never falls there.
    - From 30 points of the rate on, where it keeps to its plan or nothing was planned: a slope came down to a floor, and the run
      goes on there for `max_beyond_end` of the steps until then.
    - Where nothing was planned: the rate has grown all the time while the last quarter of the run brought less than
      `min_recent_fall` of what the loss has fallen.
    ## Why it matters
    A schedule that is never stepped, ends too early or warms up forever costs a whole run, and the loss looks plausible.
    ## False alarms
    Some rates only look as if they were off:

    - The plan is a few points, and between them a curve may bend: the lab's healthy schedules leave the line by 5 % of the peak
      at most.
    - Only the first group of several is compared.
    - The rate of Brown et al. 2020 rests at its floor for 0.15 of its decay; a run half as long again as its decay has a schedule
      of another length (Hoffmann et al. 2022, appendix B).
    - Stairs are no slope.
    """
    steps, values = rate.finite_points() if rate.labels else (rate.steps[:0], np.empty(0))
    if len(steps) < min_points:
        yield Skip("too_few_points", f"{len(steps)} points of the learning rate; {min_points} are needed")
        return
    plan, ends = planned_rate(facts, steps), planned_range(facts, steps)
    if plan is None or ends is None:
        if facts.warmup_steps is UNSET:
            yield from _by_shape(steps, values, loss, max_beyond_end, min_recent_fall)
        yield from _endless_warmup(steps, values, facts)
        return
    peak = float(np.abs(plan).max())
    off = np.abs(values - plan)
    beyond = np.maximum(ends[0] - values, values - ends[1])
    series = single("learning rate", "1", steps, values)
    wrong = (off > max_off_between * peak) | (beyond > max_off_outside * peak)
    for span in spans(series, wrong[:, None], min_points=min_points):
        worst = span.rows[int(np.argmax(off[span.rows]))]
        yield Hit(
            severity="sev1" if values[worst] > sev1_ratio * peak else "sev2",
            where="learning rate",
            first=span.first,
            last=span.last,
            worst=int(steps[worst]),
            points=span.points,
            value=float(values[worst]),
            limit=float(plan[worst]),
            message="the learning rate is {value:.3g} at step {worst}, where {limit:.3g} was planned",
        )
    if not wrong.any():
        yield from _by_shape(steps, values, None, max_beyond_end, min_recent_fall)
        yield from _warmup_beyond_the_run(steps, values, facts)


def _endless_warmup(steps: Steps, values: Floats, facts: Manifest) -> Iterator[Hit | Skip]:
    """Yield the rate that still grows long after the planned warm-up; a skip where not even its length was planned."""
    if facts.warmup_steps is UNSET:
        yield _grows_to_the_end(steps, values, facts)
        return
    end = facts.warmup_steps
    yield from _warmup_beyond_the_run(steps, values, facts)
    after = np.flatnonzero(steps > MIN_TIMES_PLANNED * end)
    done = np.flatnonzero(steps <= end)
    if not end or not len(after) or not len(done):
        return
    last = int(after[-1])
    if values[last] > MIN_GROWTH * values[done[-1]] and _only_grows(values[done[-1] :]):
        yield Hit.at(
            steps[after],
            "sev2",
            f"the learning rate still grows, to {{value:.3g}}; the warm-up was to end at step {end}, with {{limit:.3g}}",
            where="learning rate",
            value=float(values[last]),
            limit=float(values[done[-1]]),
            worst=-1,
        )


def _warmup_beyond_the_run(steps: Steps, values: Floats, facts: Manifest) -> Iterator[Hit]:
    """Yield the rate that grows to the end of a run which is shorter than its warm-up."""
    if facts.warmup_steps is UNSET or facts.planned_steps is UNSET or facts.warmup_steps <= facts.planned_steps:
        return
    grows = _grows_to_the_end(steps, values, facts)
    yield from [grows] if isinstance(grows, Hit) else []


def _only_grows(values: Floats) -> bool:
    """Tell whether a rate never falls and grows twice or more: at each step, or in the stairs of a scheduler stepped per epoch.

    >>> _only_grows(np.array([1.0, 1.0, 2.0, 2.0, 3.0])), _only_grows(np.array([1.0, 1.0, 2.0, 2.0]))
    (True, False)
    """
    moves = np.diff(values)
    return bool((moves >= 0).all()) and int((moves > 0).sum()) > 1


def _grows_to_the_end(steps: Steps, values: Floats, facts: Manifest) -> Hit | Skip:
    """Return the hit of a rate that grows in all of the second half of a training that has taken its planned steps."""
    half = len(values) // 2
    is_over = facts.planned_steps is not UNSET and steps[-1] >= facts.planned_steps
    if not is_over or not _only_grows(values[half:]) or values[-1] <= MIN_GROWTH * values[half]:
        return Skip("not_recorded", "needs warmup_steps or planned_learning_rate")
    return Hit.at(
        steps[half:],
        "sev2",
        "all planned steps are taken, and the learning rate still grows, to {value:.3g}",
        where="learning rate",
        value=float(values[-1]),
        limit=float(values[half]),
        worst=-1,
    )


def _by_shape(steps: Steps, values: Floats, loss: Series | None, beyond_end: float, stall: float) -> Iterator[Hit]:
    """Yield a decay that ended long before the run and, where the loss is given, a rate that only grows while the loss rests."""
    if len(steps) < POINTS_OF_A_SHAPE:
        return
    end = _end_of_slope(steps, values)
    if end is not None and steps[-1] - steps[end] >= beyond_end * steps[end]:
        yield Hit.at(
            steps[end:],
            "sev2",
            "the learning rate has come down its slope from {limit:.3g} to {value:.3g} by step {first}, and the training "
            "goes on to step {last}",
            where="learning rate",
            value=float(values[-1]),
            limit=float(values.max()),
            worst=-1,
        )
    since = _stalls_since(steps, loss, stall) if (np.diff(values) > 0).mean() > 0.9 else None
    if since is not None:
        row = int(np.searchsorted(steps, since))
        yield Hit(
            severity="sev2",
            where="learning rate",
            first=since,
            last=int(steps[-1]),
            worst=int(steps[-1]),
            value=float(values[-1]),
            limit=float(values[row]),
            points=len(steps) - row,
            message="the learning rate has grown all the time, to {value:.3g}, and the loss no longer falls since step {first}",
        )


def _end_of_slope(steps: Steps, values: Floats, *, min_steps: int = 10, near: float = 1e-3) -> int | None:
    """Return the row at which a rate that fell at `min_steps` points or more reached the floor on which it ends."""
    top = len(values) - 1 - int(np.argmax(values[::-1]))
    floor = float(values[-1])
    away = np.flatnonzero(np.abs(values - floor) > near * values[top])
    if values[top] <= 0 or not len(away) or floor > 0.5 * values[top]:
        return None
    end = int(away[-1]) + 1
    drops = -np.diff(values[top : end + 1])
    is_slope = (drops > 0).sum() >= min_steps and drops.max(initial=0.0) < 0.2 * values[top]
    return end if is_slope and end < len(steps) else None


def _stalls_since(steps: Steps, loss: Series | None, stall: float, *, min_points: int = 200) -> int | None:
    """Return the first step of the last quarter, where the loss hardly fell in it; None where it did, or climbed."""
    if loss is None:
        return None
    known = loss.finite[:, 0] & (loss.steps <= steps[-1])
    at, values = loss.steps[known], loss.values[known, 0]
    if len(values) < 40 or at[-1] < min_points or at[0] > 0.05 * at[-1] + 1:
        return None
    quarters = [values[part] for part in np.array_split(np.arange(len(values)), 4)]
    before, last = median(quarters[2]), median(quarters[3])
    fallen = median(values[:10]) - last
    is_flat = -0.25 * fallen < before - last < stall * fallen  # one that climbs is another illness
    return int(at[3 * len(at) // 4]) if fallen > 0 and is_flat else None
