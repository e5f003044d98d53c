"""The loss of the last evaluation that both have."""

from ckaudit.diff.questions.levels import broken, judged
from ckaudit.diff.questions.question import PairAnswer, missing, question
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.loss import val_loss


@question(place=6, weighs="loss")
def validation_loss(both: Both) -> PairAnswer:
    """What does held-out text cost at the last evaluation?

    At equal tokens where equal steps have not seen as many.
    """
    fair = both.fair
    if answer := broken(fair, val_loss):
        return answer
    stretches = fair.evaluation(val_loss)
    if stretches is None:
        return missing(both, "val_loss")
    return judged(stretches, f"held-out loss at {_place(fair, int(stretches.last[-1]))}")


def _place(both: Both, step: int) -> str:
    return f"as many tokens, step {step} of the second" if both.axes.axis == "tokens" else f"step {step}"
