"""Targets of which a share is random."""

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
    symptoms=("target_misalignment", "train_val_inverted", "loss_not_falling"),
    consequences=("gradient_noise_too_high",),
    dev=Amount(strength=0.3),
    test=Amount(strength=0.15),
)
class LabelNoise(Change):
    """A share `strength` of the targets of each training batch is drawn at random; evaluations have the right ones.

    The training loss stays above the validation loss by what the random targets cost.

    Seen under seed 0: 0.7 of the targets are the next input; a training loss of 3.31 above a validation loss of 2.41 at step
    75 (healthy 2.09 and 2.08).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace some targets."""
        from ckaudit.lab.chance import swapped

        return replace(batch, targets=swapped(batch.targets, training, share=self.strength))
