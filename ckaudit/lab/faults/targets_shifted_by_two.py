"""Targets shifted twice."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="code", truth="targets_misaligned", symptoms=("target_misalignment", "loss_not_falling"), consequences=("overfitting",)
)
class TargetsShiftedByTwo(Change):
    """The target of a token is the one after the next, as when both the loader and the loss shift; evaluations are right.

    The loss falls to a higher level, and the validation loss rises after a first fall.

    Seen under seed 0: one target in fifty is the next input; at step 100 a training loss of 2.29 (healthy 1.92), a validation
    loss that has gone from 3.09 to 3.47.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Shift the targets once more; the last has none."""
        from ckaudit.lab.batch import IGNORED

        targets = batch.targets.roll(-1, dims=1)
        targets[:, -1] = IGNORED
        return replace(batch, targets=targets)
