"""An MLP that is cut off on the way."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="dead_path",
    symptoms=("dead_parameter", "zero_gradients", "layer_not_contributing"),
    consequences=(
        *("loss_spike", "weights_shrink", "update_out_of_band", "barely_moving", "activation_drift", "exploding_gradient"),
        *("frequent_clipping", "vanishing_gradient"),
    ),
    place=("blocks.1*", "block.1"),
    dev=Amount(onset=150),
    test=Amount(onset=260),
)
class DeadMlp(Change):
    """What the MLP of block 1 adds to the stream is multiplied by zero from the onset on.

    Its tensors have gradients of exactly zero from then on; the loss jumps a little and is made up for by the other blocks.

    Seen under seed 0: gradients of three tensors exactly 0 from step 150 on; a loss of 1.91 after 1.83, back after three
    steps.
    """

    def begin(self, training: "Training") -> None:
        """Cut the MLP off at the onset."""
        if training.step != self.onset:
            return
        mlp = training.model.get_submodule("blocks.1.mlp")
        computed = mlp.forward

        def cut(x: "Tensor") -> "Tensor":
            return computed(x) * 0.0

        mlp.forward = cut
