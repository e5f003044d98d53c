"""A long plateau, then a fall."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control()
class PlateauBeforeGrokking(Change):
    """Each row repeats a random word of its own, which can only be predicted by looking back.

    It looks ill because the loss stays for long where a model ends that knows how often tokens come and nothing else; then
    heads that look back form, and it falls at once.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace the batch by rows that repeat."""
        return _repeating(*batch.inputs.shape, seed=training.plan.seed * 1_000_000 + training.step)

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate on rows that repeat."""
        from ckaudit.lab.task import Evaluation

        training.evaluation = Evaluation(training.task, _repeating(128, training.plan.data.length, seed=999))
        return training.evaluate()


def _repeating(rows: int, length: int, *, seed: int, symbols: int = 16, repeats: int = 4) -> "Batch":
    import torch

    from ckaudit.lab.batch import Batch

    drawn = torch.Generator().manual_seed(seed)
    word = torch.randint(1, symbols + 1, (rows, -(-(length + 1) // repeats)), generator=drawn)
    whole = word.repeat(1, repeats)[:, : length + 1]
    return Batch(inputs=whole[:, :-1].contiguous(), targets=whole[:, 1:].contiguous(), id=str(seed))
