"""An MLP whose weights become zero."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="weights_changed_outside_optimizer",
    acceptable=("silent_data_corruption",),
    symptoms=("weights_jump", "dead_parameter", "zero_gradients", "loss_spike"),
    consequences=(
        "contradicted_claim",
        *("layer_not_contributing", "exploding_gradient", "frequent_clipping", "weights_alike"),
        *("barely_moving", "activation_drift"),
    ),
    place=("blocks.1*", "block.1"),
    dev=Amount(onset=200),
    test=Amount(onset=320),
)
class WeightsZeroedMid(Change):
    """All matrices of the MLP in block 1 are zero after the update of the onset.

    Its gradients are exactly zero for one step, until the optimizer's momentum has moved it; the loss jumps and recovers.

    Seen under seed 0: a loss of 1.85 and a gradient norm of 4.4 after 1.65 and 1.6, three tensors with gradients of 0 in that
    step; with an onset of 41 outputs of that MLP are a fortieth of the healthy ones after nine steps, and the loss hardly
    moves.
    """

    def updated(self, training: "Training") -> None:
        """Clear the matrices."""
        if training.step != self.onset:
            return
        for weight in training.model.get_submodule("blocks.1.mlp").parameters():
            weight.data.zero_()
