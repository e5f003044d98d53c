"""Rows that become longer."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control()
class CurriculumLength(Change):
    """Rows have a quarter of their length at first, half of it after 50 steps and all of it after 100; their source says so.

    It looks ill because the held-out loss, on whole rows, is bad until late positions are trained, because the tokens of a
    step double twice, and because the first loss at a new length is higher than the last at the old one.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Keep the beginning of each row."""
        length = training.plan.data.length // (4 if training.step <= 50 else 2 if training.step <= 100 else 1)
        return replace(
            batch,
            inputs=batch.inputs[:, :length].contiguous(),
            targets=batch.targets[:, :length].contiguous(),
            source=f"rows of {length} tokens",
        )
