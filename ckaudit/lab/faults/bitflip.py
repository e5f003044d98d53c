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

    Seen under seed 0: a relative update of all weights of 1.0 at step 150 (healthy 0.006), a loss of 4.3 and a gradient norm
    of 39 after 1.85 and 1.3, and still 3.7 after ten steps.
    """

    def updated(self, training: "Training") -> None:
        """Change one weight."""
        if training.step != self.onset:
            return
        layer: Any = training.model.get_submodule("blocks.1.mlp.down")
        layer.weight.data[3, 5] = self.strength
