"""A loss with the wrong sign."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="loss_sign_flipped",
    symptoms=("impossible_value", "loss_below_floor", "loss_rises", "initial_loss_off"),
    consequences=(
        "contract_violation",
        *("overfitting", "exploding_gradient", "frequent_clipping", "activation_drift", "entropy_collapse", "logit_growth"),
        *("vanishing_gradient", "nonfinite_values", "update_out_of_band", "loss_spike"),
    ),
)
class FlippedSign(Change):
    """The loss is the mean log likelihood instead of its negative, so that training makes the targets less likely.

    What is logged falls far below zero, while the validation loss climbs.

    Seen under seed 0: a loss of -4.56 in the first step and -11.4 in the fortieth; a validation loss of 7.3 at step 25
    (healthy 3.0).
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Turn the sign."""
        return -super().loss(training, logits, batch)
