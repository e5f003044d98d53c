"""Rare rows that are much harder."""

from random import Random
from typing import TYPE_CHECKING

from ckaudit.lab.backwards import backwards
from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control()
class HeavyTailed(Change):
    """In one of twelve batches, a quarter of the rows is of a kind that is rare and much harder.

    It looks ill because the loss of such a batch stands out, again and again: the data is like that from the beginning, and
    each next batch is as good as if nothing had been.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Turn rows of some batches around."""
        is_hard = Random(f"{training.plan.seed}/hard/{training.step}").random() < 1 / 12
        return backwards(batch, len(batch.inputs) // 4) if is_hard else batch
