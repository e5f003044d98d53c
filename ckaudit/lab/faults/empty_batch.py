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
    consequences=("loss_not_falling", "hidden_nonfinite", "impossible_value"),
    dev=Amount(onset=140),
    test=Amount(onset=220),
)
class EmptyBatch(Change):
    """All targets of one batch are padding, so that the mean over those that count is 0 / 0.

    Loss and gradients of that step are NaN, and so are all weights from then on.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Let no target count."""
        import torch

        from ckaudit.lab.batch import IGNORED

        return replace(batch, targets=torch.full_like(batch.targets, IGNORED)) if training.step == self.onset else batch
