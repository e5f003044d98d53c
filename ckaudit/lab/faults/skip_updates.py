"""Updates that are not applied any more."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="updates_not_applied",
    acceptable=("not_in_optimizer",),
    symptoms=("skipped_updates", "barely_moving", "loss_not_falling"),
    consequences=("update_out_of_band",),
    dev=Amount(onset=100),
    test=Amount(onset=220),
    detectable=50,
)
class SkipUpdates(Change):
    """The optimizer's step is not taken from the onset on, while gradients are computed as before.

    No tensor moves and the loss stays where it is.

    Seen under seed 0: relative updates of 0 and a count of updates that stands still from the onset on; the loss stays at
    2.8.
    """

    def update(self, training: "Training") -> None:
        """Take the step before the onset only."""
        if training.step < self.onset:
            super().update(training)
