"""Losses of two runs: of the last step, of the last steps, after as many tokens, of the last evaluation and of each slice."""

import numpy as np

from ckaudit.diff.questions.levels import broken, judged
from ckaudit.diff.questions.question import PairAnswer, missing, question
from ckaudit.diff.run_pair import SURE, Both
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss
from ckaudit.metrics.progress import tokens_seen


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


@question(place=3, weighs="loss")
def loss_at_equal_tokens(both: Both) -> PairAnswer:
    """What does the loss cost after as many tokens?"""
    along = both.along("tokens")
    if along is not None and (answer := broken(along, train_loss_raw)):
        return answer
    stretches = None if along is None else along.level(train_loss_raw)
    if along is None or stretches is None:
        return missing(both, "tokens_seen")
    step = int(stretches.last[-1])
    seen = tokens_seen(both.right.run).until(step)
    tokens = float(seen.values[seen.finite[:, 0], 0][-1])
    return judged(stretches, f"median loss after {tokens:.4g} tokens")


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


@question(place=7, weighs="loss", falls_with=("validation_loss",))
def validation_slices(both: Both) -> PairAnswer:
    """What does each slice of the held-out text cost at the last evaluation?

    The slice that differs most for its noise; with many slices the band is as much wider.
    """
    fair = both.fair
    labels = fair.paired(slice_val_loss).labels
    found = [
        (label, each) for column, label in enumerate(labels) if (each := fair.evaluation(slice_val_loss, column)) is not None
    ]
    if not found:
        return missing(both, "slice_val_loss")
    label, most = max(found, key=lambda each: abs(np.nan_to_num(each[1].excess[-1])))
    return judged(most, f"held-out loss of {label} at step {int(most.last[-1])}", share=SURE / len(found))
