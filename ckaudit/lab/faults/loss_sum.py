"""A loss summed over the tokens of a batch."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="loss_reduced_by_sum",
    acceptable=("clip_limit_too_low",),
    symptoms=("initial_loss_off", "frequent_clipping"),
    consequences=("exploding_gradient", "train_val_inverted", "update_out_of_band", "impossible_value", "contradicted_claim"),
)
class LossSum(Change):
    """The training loss, and with it the gradient, is the sum over all tokens of the batch; evaluations take the mean.

    Seen under seed 0: the first loss is 9,340, which is 2,048 times the healthy 4.56, and the gradient norm 2,500; clipping
    to 1 and Adam make the weights the same as in the healthy run.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Return the sum."""
        return training.task.losses(logits, batch).sum()
