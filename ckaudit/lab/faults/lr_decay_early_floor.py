"""A schedule that is at its floor when half of the run is still to come."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="schedule_horizon_wrong",
    acceptable=("learning_rate_too_low",),
    symptoms=("schedule_off_plan", "loss_not_falling"),
    consequences=("update_out_of_band", "barely_moving"),
    dev=Amount(onset=31, strength=0.4),
    test=Amount(onset=26, strength=0.3),
    detectable=100,
)
class LrDecayEarlyFloor(Change):
    """The learning rate reaches a tenth of its peak after `strength` of the steps and stays there.

    Seen under seed 0: the rate is at its floor of 0.0003 from step 160 on, where 0.0022 to 0.0003 is planned, and the loss
    hardly falls any more: 1.85 on held-out rows at step 200 (healthy: 1.69).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give what a schedule of fewer steps gives."""
        plan = training.plan
        return plan.optimizer.peak * replace(plan.schedule, final=0.1).factor(training.step, round(plan.steps * self.strength))
