"""A matrix of a middle block whose gradient becomes hundreds of times too large."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="one_tensor_dominates",
    symptoms=("dominant_tensor", "exploding_gradient", "frequent_clipping"),
    consequences=("update_out_of_band", "starved_branch", "vanishing_gradient", "loss_spike"),
    place=("blocks.1.mlp.up.weight",),
    dev=Amount(onset=150, strength=300),
    test=Amount(onset=220, strength=150),
)
class OneTensorDominatesMid(Change):
    """From step `onset` on the gradient of the second block's MLP is multiplied by `strength` before it is clipped.

    Seen under seed 0: at the onset the gradient norm jumps from 1.3 to 30, and one matrix holds 99.9 % of its square; the
    others move half as much at step 200 as they should, and the loss falls behind, 1.74 (healthy: 1.65).
    """

    def gradients(self, training: "Training") -> None:
        """Enlarge the gradient of one matrix from the onset on."""
        if training.step >= self.onset:
            matrix: Any = training.model.get_parameter("blocks.1.mlp.up.weight")
            matrix.grad.mul_(self.strength)
