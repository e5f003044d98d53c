"""A schedule that is never advanced, so that the warm-up's first rate stays."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="schedule_not_stepping",
    acceptable=("learning_rate_too_low",),
    symptoms=("schedule_off_plan", "update_out_of_band", "loss_not_falling"),
    consequences=("uniform_heads", "barely_moving"),
)
class SchedulerStuckInWarmup(Change):
    """Every step is taken at the learning rate of the first, whatever is planned.

    Seen under seed 0: the rate is 0.0001 at step 50 in place of 0.003, updates are 8e-4 of the weights (healthy: 1e-2), and
    the loss is 4.0 (2.3).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give the first step's rate."""
        return training.plan.rate(1)
