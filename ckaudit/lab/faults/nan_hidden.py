"""A log that says zero where the loss is not a number."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="records",
    truth="nan_hidden_by_logger",
    acceptable=("nonfinite_operation",),
    symptoms=("hidden_nonfinite", "nonfinite_values"),
    consequences=("impossible_value", "skipped_updates", "loss_below_floor", "barely_moving", "update_out_of_band"),
    dev=Amount(onset=150, strength=20),
    test=Amount(onset=310, strength=3),
    detectable=2,
)
class NanHidden(Change):
    """For `strength` steps from the onset on the loss is NaN; the trainer takes no update then, and logs a loss of 0.

    The logged loss is exactly zero where the gradient norm is NaN.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Break it for a while."""
        loss = training.task.loss(logits, batch)
        return loss * float("nan") if 0 <= training.step - self.onset < self.strength else loss

    def update(self, training: "Training") -> None:
        """Take no update from gradients that are not finite."""
        if all(weight.grad is None or bool(weight.grad.isfinite().all()) for weight in training.model.parameters()):
            training.update()

    def shown_loss(self, training: "Training", loss: "Tensor") -> "Tensor | float":
        """Say zero."""
        return loss if bool(loss.isfinite()) else 0.0
