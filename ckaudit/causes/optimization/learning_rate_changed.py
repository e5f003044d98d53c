"""The running schedule was given another peak."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import FOLLOWS, rate_jump_before_trouble
from ckaudit.causes.shared.rate_course import known_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series, Steps


@cause(
    prior=-1.0,
    explains=[learning_rate_jump],
    follows=[*FOLLOWS, barely_moving, learning_rate_zero, schedule_off_plan],
    wants=[learning_rate, FACTS],
    knob="Find what set the learning rate anew at that step, and put the schedule back on its course.",
    inspect="The learning rate on the two sides of the jump: a new config, a second schedule, a factor applied twice.",
    runbook="Stop and go back to the last checkpoint before the jump: compare the planned rate with the logged one.",
)
def learning_rate_changed(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    *,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """The running schedule was given another peak, times a number.

    The rate jumps to where no warm-up had brought it. No scheduler does that by itself, least of all along the same slope. A
    record of sessions tells whether the run was taken up again, which may explain the jump. Log odds are first guesses.
    """
    jump = findings.first(learning_rate_jump)
    if jump is None or jump.first_step is None:
        return
    if facts is not None and facts.sessions is not UNSET and len(facts.sessions) > 1:
        yield contradicts(decisive, "the run was taken up again, which may explain it", "run.json")
        return
    yield supports(strong, jump.message, jump)
    if rate_jump_before_trouble(findings):
        yield supports(medium, "all trouble began after it", jump)
    times = _same_slope(*known_rate(rate), jump.first_step)
    if times is None:
        return
    yield supports(
        medium,
        f"from step {jump.first_step} on the rate is {times:.3g} times what it was, and goes on along the same slope: "
        "another peak was given to the same schedule",
        learning_rate.name,
    )
    yield Advice(
        f"Find what multiplied the learning rate by {times:.3g} at step {jump.first_step}: the schedule stands where it should, "
        "its peak does not."
    )


def _same_slope(steps: Steps, values: Floats, step: int, *, reach: int = 10, near: int = 4, alike: float = 0.2) -> float | None:
    """Return the factor by which the rate jumps at a step; None where it does not go on along the same slope."""
    row = int(np.searchsorted(steps, step))
    sides = values[max(0, row - reach) : row], values[row : row + reach]
    if any(len(side) < reach or (side <= 0).any() for side in sides):
        return None
    before, after = (median(np.diff(np.log(side))) for side in (sides[0][-near:], sides[1][:near]))
    times = float(sides[1][0] / sides[0][-1])
    is_constant = before == after == 0 and times > 1  # a constant rate that falls is a stair, and no schedule has one upwards
    return times if is_constant or abs(after - before) < alike * abs(before) else None
