"""One weight that a flipped bit has changed."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="silent_data_corruption",
    acceptable=("weights_changed_outside_optimizer",),
    symptoms=("weights_jump", "loss_spike", "exploding_gradient"),
    consequences=(
        *("activation_drift", "entropy_collapse", "logit_growth", "update_out_of_band", "frequent_clipping", "dominant_tensor"),
        *("barely_moving", "dead_parameter", "vanishing_gradient", "saturated_units"),
    ),
    place=("blocks.1.mlp.down*",),
    dev=Amount(onset=150, strength=1e4),
    test=Amount(onset=280, strength=1e3),
)
class Bitflip(Change):
    """One element of the MLP's second matrix in block 1 becomes `strength` after the update of the onset, and stays in its place.

    One tensor moves by far more than the optimizer can move it; the loss jumps in the next step.

    Seen under seed 0, with an onset of 31: a loss that jumps from 2.7 to 4.5, a norm of one tensor that goes from 1.8 to
    9973, outputs of that layer of -1696; the loss needs the rest of the run to recover.
    """

    def updated(self, training: "Training") -> None:
        """Change one weight."""
        if training.step != self.onset:
            return
        layer: Any = training.model.get_submodule("blocks.1.mlp.down")
        layer.weight.data[3, 5] = self.strength
