"""Pictures that are not scaled down."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="inputs_not_normalized",
    symptoms=("input_scale_off",),
    consequences=(
        *("activation_drift", "initial_loss_off", "overfitting", "loss_not_falling"),
        *("vanishing_gradient", "update_out_of_band"),
    ),
    dev=Amount(strength=255),
    test=Amount(strength=64),
    family="cnn",
)
class InputsX255(Change):
    """Inputs of training are `strength` times as large as they should be; those of evaluations are right.

    It is as if only one of two pipelines divided by 255.
    What the first convolution puts out is as much larger; batch norm hides it from the loss, but not from evaluations.

    Seen under seed 0: outputs of the first convolution of 133 (healthy 0.5), the same training loss, a validation loss of 2.3
    at step 150 (healthy 0.46).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Scale the inputs."""
        return replace(batch, inputs=batch.inputs * self.strength)
