"""Held-out rows in the training data."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="validation_leaks_into_training",
    symptoms=("train_val_inverted", "split_overlap", "loss_below_floor"),
    consequences=("repeated_batch",),
    dev=Amount(strength=0.5),
    test=Amount(strength=0.3),
    detectable=150,
)
class ValLeak(Change):
    """A share `strength` of each training batch are rows that evaluations are made on, taken in turn.

    They are learnt by heart, so that the validation loss falls below the training loss.

    Seen under seed 0: a validation loss below the training loss by 0.1 from step 150 on, and by 0.13 at step 200 (healthy: by
    0.02 at most).
    """

    _held: "Batch"

    def begin(self, training: "Training") -> None:
        """Draw the held-out rows once."""
        if training.step == 1:
            self._held = training.corpus.held_out()

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace the first rows by held-out ones."""
        import torch

        count = int(self.strength * len(batch.inputs))
        rows = torch.arange((training.step - 1) * count, training.step * count) % len(self._held.inputs)
        inputs = torch.cat((self._held.inputs[rows], batch.inputs[count:]))
        return replace(batch, inputs=inputs, targets=torch.cat((self._held.targets[rows], batch.targets[count:])))
