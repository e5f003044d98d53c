"""Loader workers that share a seed."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="batches_repeated",
    acceptable=("loader_stuck",),
    symptoms=("repeated_batch",),
    dev=Amount(strength=2),
    test=Amount(strength=4),
)
class WorkersShareSeed(Change):
    """Each batch comes `strength` times in a row, once from each worker, under a number of its own.

    The loss falls as always, from fewer distinct tokens than were counted.

    Seen under seed 0: every hash twice, under two names.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Give each batch several times."""
        return replace(training.corpus.batch((training.step - 1) // int(self.strength) + 1), id=batch.id)
