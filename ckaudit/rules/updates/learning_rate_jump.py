"""SCHED003: the learning rate jumps."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.reductions import running_medians
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.blocks import blocks, by_blocks
from ckaudit.run.robust import least_decimal_step
from ckaudit.run.run_facts import planned_range, resume_steps
from ckaudit.run.series import Floats, Mask, Series, Steps
from ckaudit.wording import plural


@rule("SCHED003", severity="sev2", needs=[learning_rate], wants=[FACTS], unit="1")
def learning_rate_jump(
    rate: Series,
    facts: Manifest | None,
    *,
    min_jump: float = 0.01,
    max_ratio_to_past: float = 1.2,
    steps_after_resume: int = 5,
    tolerance: float = 0.05,
    min_ratio_to_neighbours: float = 5.0,
    min_points: int = 10,
) -> Iterator[Hit | Skip]:
    """The learning rate jumps.

    ## What it checks
    Steps at which the rate changes by more than `min_jump` of itself beyond what the slopes on both sides explain, and by
    `min_ratio_to_neighbours` times as much as at the steps around them (M06: a discontinuity at a restart):

    - A jump is sev2 at most `steps_after_resume` steps after the seam of a resume, where it is larger than the change at 95 of
      100 steps before it.
    - A jump upwards, to more than `max_ratio_to_past` times all rates before, is sev2 anywhere.
    - Any other jump is noted, for stairs and warm restarts jump as they are meant to.
    - A warm-up that is taken by epoch is noted too: its rate rises twice or more and is constant in between.
    - In a log too short for slopes, a fall by more than `min_jump` from one step to the next is noted where the plan is so long
      that no schedule falls by a tenth of that.
    ## Why it matters
    After a resume with another rate the run is another experiment. No warm-up has prepared it for a rate that was never reached
    before.
    ## False alarms
    Jumps to a rate that run.json plans for the step, within `tolerance` of the planned peak, are left out. The first `min_points`
    points have no slope of their own. A rate that is printed in few decimals climbs in stairs of its last digit.
    """
    steps, values = rate.finite_points() if rate.labels else (rate.steps[:0], np.empty(0))
    if len(steps) < 2 * min_points:
        few = _in_few_lines(steps, values, facts, min_jump)
        yield few or Skip("too_few_points", f"{len(steps)} points of the learning rate; {2 * min_points} are needed")
        return
    size = _beyond_slopes(steps, values)
    around = running_medians(np.pad(size, 5, mode="reflect"), 11)  # where a curve bends, all points are alike
    jumps = (
        (size > min_jump)
        & (size > min_ratio_to_neighbours * around)
        & (np.arange(len(steps)) >= min_points)
        & ~_as_planned(facts, steps, values, tolerance)
    )
    del size, around
    highest = np.concatenate([[np.inf], np.maximum.accumulate(values)[:-1]])
    after_seam = np.zeros(len(steps), bool)
    for seam in resume_steps(facts):
        after_seam |= (steps > seam) & (steps <= seam + steps_after_resume) & _is_unusual(steps, values, seam)
    serious = jumps & (after_seam | (values > max_ratio_to_past * highest))
    if _is_warmup_by_epoch(values, np.flatnonzero(serious & ~after_seam)):
        serious &= after_seam
    for row in map(int, np.flatnonzero(serious)):
        where = "after the resume" if after_seam[row] else "to more than it ever was"
        yield _hit("sev2", steps, values, row, "the learning rate jumps from {limit:.3g} to {value:.3g}, " + where)
    if rows := np.flatnonzero(jumps & ~serious).tolist():
        yield _stairs(steps, values, rows)


def _is_warmup_by_epoch(values: Floats, rises: NDArray[np.int64]) -> bool:
    """Tell whether a rate rises in several stairs, constant before each of them, as a scheduler that steps by epoch has it."""
    return len(rises) > 1 and len(np.unique(values[: rises[-1]])) == len(rises)


def _is_unusual(steps: Steps, values: Floats, seam: int, *, share: float = 0.95) -> Mask:
    """Return the steps at which the rate changes, per step, by more than at `share` of the steps before a seam."""
    pace = np.abs(np.diff(values, prepend=values[:1])) / np.diff(steps, prepend=steps[0] - 1)
    before = pace[1:][steps[1:] <= seam]
    return np.asarray(pace > np.quantile(before, share)) if len(before) else np.ones(len(steps), bool)


def _stairs(steps: Steps, values: Floats, rows: list[int]) -> Hit:
    """Return one note on all jumps that may be meant."""
    return Hit.at(
        steps[rows],
        "note",
        f"the learning rate changes in {plural(len(rows), 'stair')}, the first from {{limit:.3g}} to {{value:.3g}} at step "
        "{first}",
        where="learning rate",
        value=float(values[rows[0]]),
        limit=float(values[rows[0] - 1]),
        worst=0,
    )


def _in_few_lines(
    steps: Steps, values: Floats, facts: Manifest | None, jump: float, *, steep: float = 16.0, late: float = 0.9
) -> Hit | None:
    """Return the first fall between neighbouring steps that a schedule of the planned length cannot make.

    In one step a cosine falls by at most pi / 2 of its peak over the planned steps, and a decay in their last tenth by ten
    times as much: `steep` is beyond both. After `late` of the plan a rate may decay to nothing.
    """
    planned = facts.planned_steps if facts else UNSET
    if planned is UNSET or not planned or len(steps) < 2 or jump < 10 * steep / planned:
        return None
    fall = -np.diff(values) / np.maximum(values[:-1], 1e-300)
    rows = np.flatnonzero((np.diff(steps) == 1) & (fall > jump) & (steps[1:] < late * planned)) + 1
    if not len(rows):
        return None
    return _hit(
        "note",
        steps,
        values,
        int(rows[0]),
        f"the learning rate falls from {{limit:.4g}} to {{value:.4g}} in one of {planned:,} steps",
    )


def _beyond_slopes(steps: Steps, values: Floats) -> Floats:
    """Return how far each point is from the lines through the two points before it and the two after it, over the larger rate.

    The smaller of the two distances counts, for at a corner one of the two lines bends. Two units of the log's last digit are
    taken off it: a rounded warm-up is a staircase. A change between those of the two lines is a bend between two points of the
    log, such as the end of a warm-up, unless the rate only rises after it: then it was set back. Shape (T,); 0 where a side has
    no line.
    """
    distance = np.zeros(len(steps))
    digit = _last_digit(values)
    for rows in blocks(len(steps) - 3):
        four = slice(rows.start, rows.stop + 3)
        distance[rows.start + 2 : rows.stop + 2] = _beyond_slopes_of_four(steps[four], values[four], digit)
    return distance


def _beyond_slopes_of_four(steps: Steps, values: Floats, digit: float) -> Floats:
    """Return what _beyond_slopes does, for the third of each four points in a row, shape (T - 3,)."""
    gaps = np.diff(steps).astype(float)
    slope = np.diff(values) / gaps
    change = np.diff(values)[1:-1]
    expected = np.stack([slope[:-2] * gaps[1:-1], slope[2:] * gaps[1:-1]])
    beyond = np.abs(change - expected).min(axis=0)
    is_bend = (expected.min(axis=0) <= change) & (change <= expected.max(axis=0)) & ~((slope[:-2] <= 0) & (slope[2:] > 0))
    beyond[is_bend] = 0.0
    size = np.maximum(np.maximum(np.abs(values[1:-2]), np.abs(values[2:-1])), 1e-300)
    return np.asarray(np.maximum(beyond - 2 * digit, 0.0) / size)


def _last_digit(values: Floats, *, stairs: int = 5, slack: float = 0.1) -> float:
    """Return the unit of the last decimal of a log in which the rate often moves by just that, else 0."""
    digit = least_decimal_step(values)
    moves = by_blocks(lambda now, before: np.abs(np.abs(now - before) - digit), values[1:], values[:-1])
    return digit if (moves < slack * digit).sum() >= stairs else 0.0


def _as_planned(facts: Manifest | None, steps: Steps, values: Floats, tolerance: float) -> Mask:
    """Return which steps have the rate that run.json plans; false where no plan is known."""
    ends = planned_range(facts, steps)
    if ends is None:
        return np.zeros(len(steps), bool)
    slack = tolerance * float(np.abs(ends[1]).max())
    return np.asarray((values >= ends[0] - slack) & (values <= ends[1] + slack))


def _hit(severity: Severity, steps: Steps, values: Floats, row: int, message: str) -> Hit:
    return Hit.at(
        [int(steps[row])],
        severity,
        message,
        where="learning rate",
        value=float(values[row]),
        limit=float(values[row - 1]),
        worst=0,
    )
