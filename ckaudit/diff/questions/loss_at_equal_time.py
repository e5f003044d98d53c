"""The level of the loss after as much time on the clock."""

from msgspec.structs import replace

from ckaudit.diff.both import Both
from ckaudit.diff.questions.levels import judged
from ckaudit.diff.questions.question import Said, missing, question
from ckaudit.metrics.loss import train_loss_raw


@question(place=4, weighs="cost")
def loss_at_equal_time(both: Both) -> Said:
    """What does the loss cost after as much time?

    Time in which the training ran: pauses between sessions do not count. What the machine was busy with counts too, so
    that this alone makes no pair better or worse.
    """
    along = both.along("time")
    found = None if along is None else along.level(train_loss_raw)
    if along is None or found is None:
        return missing(both, "time")
    return replace(judged(found, f"median loss after the time that step {int(found.last[-1])} took"), grave=False)
