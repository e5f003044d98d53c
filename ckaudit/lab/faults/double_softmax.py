"""Probabilities in place of logits."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="softmax_applied_twice",
    symptoms=("loss_not_falling", "vanishing_gradient"),
    consequences=("overfitting", "weights_shrink", "dead_parameter", "update_out_of_band", "loss_spike", "zero_gradients"),
    detectable=60,
)
class DoubleSoftmax(Change):
    """The loss is given probabilities and applies softmax to them; evaluations use the logits as they should.

    With V tokens the training loss cannot fall below ln(V - 1 + e) - 1, and the gradient is V times smaller than it should be.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Apply softmax first."""
        return super().loss(training, logits.softmax(-1), batch)
