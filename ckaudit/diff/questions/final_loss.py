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
    if answer := broken(both.in_training, train_loss_raw):
        return answer
    stretches = both.in_training.stretches(train_loss_raw, size=1, last=100, ahead=0.0)
    if stretches is None:
        return missing(both, "train_loss_raw")
    return judged(stretches, f"loss at step {int(stretches.last[-1])}")
