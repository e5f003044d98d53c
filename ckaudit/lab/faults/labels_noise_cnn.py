"""Classes of which a share is random."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="noisy_labels",
    symptoms=("train_val_inverted", "loss_not_falling"),
    consequences=("gradient_noise_too_high",),
    dev=Amount(strength=0.4),
    test=Amount(strength=0.25),
    detectable=100,
    family="cnn",
)
class LabelsNoiseCnn(Change):
    """A share `strength` of the classes of each training batch is drawn at random; evaluations have the right ones.

    The training loss stays above the validation loss by what the random classes cost.

    Seen under seed 0: at step 150 a training loss of 1.70 (healthy 0.47) above a validation loss of 0.98 (healthy 0.46).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace some classes."""
        from ckaudit.lab.chance import swapped

        return replace(batch, targets=swapped(batch.targets, training, share=self.strength))
