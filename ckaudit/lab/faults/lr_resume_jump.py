"""A resume with another learning rate."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="resume",
    truth="learning_rate_wrong_after_resume",
    acceptable=("learning_rate_changed",),
    symptoms=("learning_rate_jump", "schedule_off_plan"),
    consequences=(
        *("loss_spike", "update_out_of_band", "entropy_collapse", "logit_growth", "activation_drift", "exploding_gradient"),
        *("frequent_clipping", "seam_jump", "loss_rises"),
    ),
    dev=Amount(onset=151, strength=10),
    test=Amount(onset=261, strength=3),
)
class LrResumeJump(Change):
    """The training is stopped and taken up again at the onset, with `strength` times the planned learning rate from then on.

    Learning rate and updates jump together at the seam, and the loss follows.

    Seen under seed 0, with an onset of 41: a rate of 0.030 after 0.003, a gradient norm of 40 two steps later, a loss that
    goes from 2.4 to 4.3, relative updates of 0.065 (healthy 0.010).
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def rate(self, training: "Training", rate: float) -> float:
        """Raise the rate after the resume."""
        return rate * self.strength if training.step >= self.onset else rate
