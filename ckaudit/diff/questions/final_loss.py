"""The loss of the last step that both have."""

from ckaudit.diff.questions.levels import broken, judged
from ckaudit.diff.questions.question import PairAnswer, missing, question
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.loss import train_loss_raw


@question(place=1, weighs="loss")
def final_loss(both: Both) -> PairAnswer:
    """What does the last step cost?

    One batch: its noise is that of a single point, many times that of the smoothed loss.
    """
    if said := broken(both.in_training, train_loss_raw):
        return said
    found = both.in_training.stretches(train_loss_raw, size=1, last=100, ahead=0.0)
    if found is None:
        return missing(both, "train_loss_raw")
    return judged(found, f"loss at step {int(found.last[-1])}")
