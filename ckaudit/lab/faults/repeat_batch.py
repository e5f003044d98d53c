"""One batch for the whole training."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="loader_stuck",
    symptoms=("repeated_batch", "overfitting"),
    consequences=(
        *("loss_below_floor", "vanishing_gradient", "entropy_collapse", "logit_growth", "exploding_gradient"),
        *("frequent_clipping", "update_out_of_band"),
    ),
)
class RepeatBatch(Change):
    """Every step gets the first batch, as from a loader that is made anew in each step.

    It is learnt by heart: the training loss falls towards zero, the validation loss rises.

    Seen under seed 0: one hash; at step 75 a training loss of 1.34 and a validation loss of 2.66 that rises.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Give the first batch."""
        return training.corpus.batch(1)
