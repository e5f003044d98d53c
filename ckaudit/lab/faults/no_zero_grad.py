"""The missing `zero_grad`."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="gradients_not_zeroed",
    symptoms=("gradients_carried_over", "exploding_gradient", "frequent_clipping"),
    consequences=(
        "entropy_collapse",
        "activation_drift",
        "loss_not_falling",
        "logit_growth",
        "dominant_tensor",
        "update_out_of_band",
    ),
    detectable=30,
)
class NoZeroGrad(Change):
    """Gradients are never cleared, so that each step applies the sum of all gradients so far.

    The norm of the gradient swings slowly and stays high, for one batch hardly changes the sum; the loss falls all the same.
    """

    def zero(self, training: "Training") -> None:
        """Leave the gradients as they are."""
