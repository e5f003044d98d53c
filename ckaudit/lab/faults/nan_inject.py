"""A loss that is not a number."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="nonfinite_operation",
    symptoms=("nonfinite_values",),
    consequences=("loss_not_falling", "hidden_nonfinite", "impossible_value"),
    dev=Amount(onset=150),
    test=Amount(onset=260),
)
class NanInject(Change):
    """The loss of one step is NaN, as after a division by zero somewhere in it.

    Gradients of that step are NaN, and so are all weights from then on.

    Seen under seed 0, with an onset of 31: loss and gradient norm NaN from that step on, and so the next validation loss.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Make the loss NaN at the onset."""
        loss = super().loss(training, logits, batch)
        return loss * float("nan") if training.step == self.onset else loss
