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
    if answer := broken(both.in_training, train_loss_raw):
        return answer
    stretches = both.in_training.level(train_loss_raw)
    if stretches is None:
        return missing(both, "train_loss_raw")
    return judged(stretches, f"median loss of steps {int(stretches.first[-1])} to {int(stretches.last[-1])}")
