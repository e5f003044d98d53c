"""Targets that are not shifted."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="targets_not_shifted",
    acceptable=("targets_misaligned",),
    symptoms=("target_equals_input", "target_misalignment", "loss_below_floor"),
    consequences=("overfitting", "vanishing_gradient", "update_out_of_band", "uniform_heads", "loss_rises"),
)
class NoShift(Change):
    """The target of every token is the token itself; evaluations are right.

    The training loss falls to zero and the validation loss rises without end.

    Seen under seed 0: all targets are the inputs beside them; a training loss of 0.08 at step 60 and a validation loss of
    5.2.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Give the inputs as targets."""
        return replace(batch, targets=batch.inputs)
