"""A batch without a single target."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="bad_batch",
    acceptable=("nonfinite_operation",),
    symptoms=("nonfinite_values",),
    consequences=("zero_gradients", "dead_parameter", "skipped_updates"),
    dev=Amount(onset=140),
    test=Amount(onset=220),
)
class EmptyBatch(Change):
    """All targets of one batch are padding, so that the mean over those that count is 0 / 0.

    The loss of that step is NaN and every gradient exactly zero; the training goes on unharmed.

    Seen under seed 0, with an onset of 31: a NaN in the loss of one step, a gradient norm of 0, the next loss as if nothing
    had been.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Let no target count."""
        import torch

        from ckaudit.lab.batch import IGNORED

        return replace(batch, targets=torch.full_like(batch.targets, IGNORED)) if training.step == self.onset else batch
