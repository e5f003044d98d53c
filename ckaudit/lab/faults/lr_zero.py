"""A schedule that gives zero at every step."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="learning_rate_is_zero",
    acceptable=("updates_not_applied",),
    symptoms=("learning_rate_zero", "schedule_off_plan", "barely_moving", "update_out_of_band"),
    consequences=("loss_not_falling", "uniform_heads", "frozen_parameter"),
)
class LrZero(Change):
    """The learning rate is zero from the first step on, whatever is planned.

    Seen under seed 0: every update is exactly zero while the gradient norm is 1.25, and the loss stays at 4.56.
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give zero."""
        return 0.0
