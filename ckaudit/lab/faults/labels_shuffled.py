"""Targets in a random order."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="targets_misaligned",
    symptoms=("target_misalignment", "loss_not_falling"),
    consequences=(
        "uniform_heads",
        "train_val_inverted",
        "dominant_tensor",
        "vanishing_gradient",
        "update_out_of_band",
        "dead_units",
        "zero_gradients",
    ),
)
class LabelsShuffled(Change):
    """The targets of each training batch are permuted, as by a loader that shuffles inputs and targets apart.

    The loss stops at the entropy of single tokens, for nothing else can be learnt.

    Seen under seed 0: one target in thirteen is the next input; a loss of 2.85 from step 40 on, the entropy of single tokens,
    and gradients of queries and keys of 1e-10.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Permute the targets."""
        import torch

        from ckaudit.lab.chance import chance

        order = torch.randperm(batch.targets.numel(), generator=chance(training))
        return replace(batch, targets=batch.targets.flatten()[order].view_as(batch.targets))
