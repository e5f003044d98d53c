"""A resume that leaves a block as it was drawn."""

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
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band", "activation_drift", "dominant_tensor"),
    place=("blocks.1*", "blocks.2*", "block.1", "block.2"),
    dev=Amount(onset=151, strength=1),
    test=Amount(onset=281, strength=2),
)
class ResumeWrongWeights(Change):
    """The training is stopped and taken up again at the onset; the weights of block `strength` are not found in what was saved.

    That block has new random weights after the seam, and the loss jumps until they are learnt again.

    Seen under seed 0: a loss of 2.05 and a gradient norm of 4.5 after 1.85 and 1.3, and both back after three steps; with an
    onset of 41 norms in block 1 fall by a fifth and nothing shows in the loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Take over everything but the block."""
        drawn = training.model.state_dict()
        found = {
            name: drawn[name].clone() if name.startswith(f"blocks.{self.strength:.0f}.") else saved["model"][name]
            for name in drawn
        }
        super().restore(training, saved | {"model": found})
