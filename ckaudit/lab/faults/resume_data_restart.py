"""A resume from the beginning of the data."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="resume",
    truth="data_position_lost",
    symptoms=("repeated_batch",),
    consequences=("seam_jump",),
    dev=Amount(onset=151),
    test=Amount(onset=241),
)
class ResumeDataRestart(Change):
    """The training is stopped and taken up again at the onset, while the loader starts at its first batch.

    The hashes and names of the first batches come again; what was seen once before is hardly known better.

    Seen under seed 0, with an onset of 41: the hashes of steps 1 to 10 again, and nothing in the loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Count batches from the resume."""
        return batch if training.step < self.onset else training.corpus.batch(training.step - self.onset + 1)
