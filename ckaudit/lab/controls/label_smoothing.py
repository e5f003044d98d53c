"""Targets that are not quite certain."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control()
class LabelSmoothing(Change):
    """The training loss spreads a tenth of each target over all tokens (Szegedy et al. 2016); evaluations do not.

    It looks ill because the training loss stays above the held-out loss and cannot come near zero.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Smooth the targets."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten(), label_smoothing=0.1)
