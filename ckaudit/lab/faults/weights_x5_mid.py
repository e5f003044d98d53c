"""A block whose weights are multiplied."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="weights_changed_outside_optimizer",
    acceptable=("silent_data_corruption",),
    symptoms=("weights_jump", "loss_spike"),
    consequences=(
        *("entropy_collapse", "logit_growth", "activation_drift", "exploding_gradient", "frequent_clipping", "weights_grow"),
        *("update_out_of_band", "barely_moving", "vanishing_gradient", "dominant_tensor"),
    ),
    place=("blocks.1*", "block.1", "layer.1*"),
    dev=Amount(onset=150, strength=5),
    test=Amount(onset=265, strength=3),
)
class WeightsX5Mid(Change):
    """All matrices of block 1 are multiplied by `strength` after the update of the onset.

    The weights of one block jump, the loss jumps in the next step and recovers.

    Seen under seed 0: a relative update of all weights of 0.6 at step 150 (healthy 0.006), a loss of 4.7 after 1.85 and 2.8
    fifteen steps later.
    """

    def updated(self, training: "Training") -> None:
        """Multiply the matrices."""
        if training.step != self.onset:
            return
        for weight in training.model.get_submodule("blocks.1").parameters():
            if weight.dim() == 2:
                weight.data.mul_(self.strength)
