"""A schedule that falls to zero in the middle of the run."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="learning_rate_is_zero",
    acceptable=("schedule_horizon_wrong", "updates_not_applied"),
    symptoms=("learning_rate_zero", "schedule_off_plan", "barely_moving", "update_out_of_band"),
    consequences=("loss_not_falling", "learning_rate_jump", "frozen_parameter"),
    dev=Amount(onset=200),
    test=Amount(onset=320),
)
class LrZeroLate(Change):
    """The learning rate is as planned before step `onset`, and zero from then on.

    Seen under seed 0: from step 200 on every update is exactly zero, and the validation loss stays at 1.65 (healthy at the
    end: 1.24).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give zero from the onset on."""
        return rate if training.step < self.onset else 0.0
