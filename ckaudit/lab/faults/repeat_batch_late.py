"""A loader that gets stuck on the way."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

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
    dev=Amount(onset=180),
    test=Amount(onset=260),
)
class RepeatBatchLate(Change):
    """From the onset on every step gets the batch of the step before the onset, while the loader goes on counting.

    The training loss dives, the validation loss rises.

    Seen under seed 0, with an onset of 61: one hash; a training loss that goes from 2.2 to 1.36 in 40 steps, a validation
    loss from 2.2 to 2.46.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Give the last batch that was new."""
        if training.step < self.onset:
            return batch
        return replace(training.corpus.batch(self.onset - 1), id=batch.id)
