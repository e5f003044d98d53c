"""One batch that is a little harder, and nothing after it."""

from typing import TYPE_CHECKING

from ckaudit.lab.backwards import backwards
from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control(expected=("loss_spike",))
class RecoveredSmallSpike(Change):
    """Of one batch, at three fifths of the steps, an eighth of the rows is of a kind that was never seen.

    It looks ill because the loss jumps: the next batch is as good as the one before.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Turn rows of one batch around."""
        is_hard = training.step == training.plan.steps * 3 // 5
        return backwards(batch, len(batch.inputs) // 8) if is_hard else batch
