"""Updates of which some are lost."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="updates_not_applied",
    symptoms=("skipped_updates", "barely_moving"),
    consequences=("loss_not_falling", "update_out_of_band"),
    dev=Amount(onset=60, strength=2),
    test=Amount(onset=110, strength=3),
    detectable=50,
)
class SkipUpdatesSometimes(Change):
    """One update in `strength` is not applied from the onset on, as when a loop that accumulates counts its batches wrongly.

    The loss falls a little slower, and nothing moves in the steps that are lost.

    Seen under seed 0: the count of updates falls behind that of steps, and every checkpoint, at an even step, shows no
    movement at all; the loss is 0.1 to 0.2 higher.
    """

    def update(self, training: "Training") -> None:
        """Take the step where it is not lost."""
        if training.step < self.onset or (training.step - self.onset) % self.strength:
            super().update(training)
