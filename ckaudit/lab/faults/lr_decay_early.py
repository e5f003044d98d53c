"""A schedule made for a run a fifth as long."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="schedule_horizon_wrong",
    acceptable=("learning_rate_is_zero",),
    symptoms=("schedule_off_plan", "learning_rate_zero", "barely_moving", "update_out_of_band", "loss_not_falling"),
    consequences=("uniform_heads", "frozen_parameter"),
    dev=Amount(onset=31, strength=0.2),
    test=Amount(onset=26, strength=0.25),
    detectable=50,
)
class LrDecayEarly(Change):
    """The learning rate has come down to zero after `strength` of the steps; what is planned ends with the run.

    Seen under seed 0: the rate is 0 from step 80 on, where 0.003 is planned, updates are exactly zero, and the loss stays
    at 2.2 (healthy at step 200: 1.65).
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give what a schedule of fewer steps gives."""
        plan = training.plan
        return plan.optimizer.peak * replace(plan.schedule, final=0.0).factor(training.step, round(plan.steps * self.strength))
