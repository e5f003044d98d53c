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
    symptoms=("loss_not_falling", "train_val_inverted"),
    consequences=(
        *("overfitting", "vanishing_gradient", "weights_shrink", "dead_parameter", "update_out_of_band"),
        *("loss_spike", "zero_gradients"),
    ),
    detectable=60,
)
class DoubleSoftmax(Change):
    """The loss is given probabilities and applies softmax to them; evaluations use the logits as they should.

    With V tokens the training loss cannot fall below ln(V - 1 + e) - 1, and the gradient is V times smaller than it should be.

    Seen under seed 0: a first gradient norm of 0.013 (healthy 1.25), a training loss of 4.23 at step 100 and a validation
    loss that is below it at step 25 (3.0) and far above it at step 100 (6.3).
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Apply softmax first."""
        return super().loss(training, logits.softmax(-1), batch)
