"""The level of the loss after as much time on the clock."""

from math import hypot

from msgspec.structs import replace

from ckaudit.diff.noise import AHEAD
from ckaudit.diff.questions.levels import judged
from ckaudit.diff.questions.question import Said, missing, question
from ckaudit.diff.questions.speed import noise_of_speed
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.speed import step_time


@question(place=4, weighs="cost")
def loss_at_equal_time(both: Both, *, least: float = 0.02) -> Said:
    """What does the loss cost after as much time?

    Time in which the training ran: pauses between sessions do not count. A machine that is now faster, now slower is
    noise in it; and what else the machine was busy with counts, so that this alone makes no pair better or worse.

    Args:
        both: The runs.
        least: Noise of the speed of a machine of its own, as a standard deviation over the speed.
    """
    along = both.along("time")
    clock = max(least, noise_of_speed(both, step_time)) if along is not None else 0.0
    found = None if along is None else along.level(train_loss_raw, ahead=hypot(AHEAD, clock))
    if along is None or found is None:
        return missing(both, "time")
    return replace(judged(found, f"median loss after the time that step {int(found.last[-1])} took"), grave=False)
