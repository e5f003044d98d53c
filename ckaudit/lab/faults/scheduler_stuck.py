"""A schedule that never leaves its peak."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="schedule_not_stepping",
    symptoms=("schedule_off_plan",),
    consequences=("learning_rate_jump", "update_out_of_band", "logit_growth"),
    dev=Amount(onset=41),
    test=Amount(onset=51),
    detectable=60,
    harmless=True,
)
class SchedulerStuck(Change):
    """After the warm-up the learning rate stays at its peak, though it is planned to fall.

    Seen under seed 0: at step 200 the rate is 0.003 in place of 0.0018, and neither loss nor tensors tell it from the
    healthy run.
    """

    def rate(self, training: "Training", rate: float) -> float:
        """Give the peak from the onset on."""
        return rate if training.step < self.onset else training.plan.optimizer.peak
