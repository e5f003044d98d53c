"""One element of a gradient that a flipped bit has changed."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="silent_data_corruption",
    symptoms=("exploding_gradient", "dominant_tensor"),
    consequences=("frequent_clipping", "update_out_of_band", "barely_moving"),
    place=("blocks.1.mlp.up*",),
    dev=Amount(onset=190, strength=1e6),
    test=Amount(onset=330, strength=1e4),
)
class BitflipGradient(Change):
    """One element of the gradient of the MLP's first matrix in block 1 is `strength` in a single step.

    The gradient norm jumps and all of it lies in one tensor, while the loss goes on; clipping takes the step away.

    Seen under seed 0, with an onset of 31: a gradient norm of 1e6 in one step; the loss is 0.02 higher afterwards.
    """

    def gradients(self, training: "Training") -> None:
        """Change one element."""
        if training.step != self.onset:
            return
        layer: Any = training.model.get_submodule("blocks.1.mlp.up")
        layer.weight.grad[3, 5] = self.strength
