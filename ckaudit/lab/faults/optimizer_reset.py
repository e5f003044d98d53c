"""A resume without the optimizer's state."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="resume",
    truth="optimizer_state_lost",
    symptoms=("optimizer_state_reset", "update_out_of_band", "seam_jump"),
    consequences=("loss_spike", "exploding_gradient"),
    dev=Amount(onset=151),
    test=Amount(onset=281),
)
class OptimizerReset(Change):
    """The training is stopped and taken up again at the onset with the weights alone; the optimizer starts anew.

    The first updates go by single gradients and are several times too large; the loss jumps for a step or two.

    Seen under seed 0: a loss of 2.5 and a gradient norm of 7.3 in the second step after the seam, 1.85 and 1.3 before it, and
    back after six more; the first step itself shows nothing.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Take over weights and step only."""
        training.model.load_state_dict(saved["model"])
        training.step = saved["step"]
