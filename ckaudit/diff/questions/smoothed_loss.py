"""The level of the loss at the end."""

from ckaudit.diff.questions.levels import broken, judged
from ckaudit.diff.questions.question import PairAnswer, missing, question
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.loss import train_loss_raw


@question(place=2, weighs="loss")
def smoothed_loss(both: Both) -> PairAnswer:
    """What do the last steps cost?

    The median of the last twentieth of the steps, 20 of them at least.
    """
    if said := broken(both.in_training, train_loss_raw):
        return said
    found = both.in_training.level(train_loss_raw)
    if found is None:
        return missing(both, "train_loss_raw")
    return judged(found, f"median loss of steps {int(found.first[-1])} to {int(found.last[-1])}")
