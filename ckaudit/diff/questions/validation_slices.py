"""The loss of each slice at the last evaluation that both have; the slice that differs most stands for all."""

import numpy as np

from ckaudit.diff.questions.levels import judged
from ckaudit.diff.questions.question import PairAnswer, missing, question
from ckaudit.diff.run_pair import SURE, Both
from ckaudit.metrics.loss import slice_val_loss


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
