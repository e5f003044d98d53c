"""A resume from old weights."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="resume",
    truth="weights_not_restored",
    symptoms=("weights_not_as_saved", "seam_jump", "weights_jump", "loss_spike"),
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band"),
    dev=Amount(onset=151, strength=50),
    test=Amount(onset=241, strength=30),
)
class ResumeOldWeights(Change):
    """The training is stopped and taken up again at the onset with weights `strength` steps old; the count of steps goes on.

    All weights go back a little at the seam, and so does the loss.

    Seen under seed 0: a loss of 2.03 after 1.85, and of 1.93 after eight more steps.
    """

    _old: dict[str, Any]

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def updated(self, training: "Training") -> None:
        """Keep the weights that will be found."""
        if training.step == self.onset - 1 - self.strength:
            self._old = {name: value.clone() for name, value in training.model.state_dict().items()}

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Take over the old weights."""
        super().restore(training, saved | {"model": self._old})
