"""Trainings that are resumed wrongly."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "lr_resume_jump",
    group="resume",
    truth="learning_rate_wrong_after_resume",
    acceptable=("learning_rate_changed",),
    symptoms=("learning_rate_jump", "schedule_off_plan"),
    consequences=(
        *("loss_spike", "update_out_of_band", "entropy_collapse", "logit_growth", "activation_drift", "exploding_gradient"),
        *("frequent_clipping", "seam_jump", "loss_rises"),
    ),
    dev=FaultStrength(onset=151, strength=10),
    test=FaultStrength(onset=261, strength=3),
)
class LrResumeJump(Change):
    """The training is stopped and resumed at the onset, with `strength` times the planned learning rate from then on.

    Learning rate and updates jump together at the seam, and the loss follows.

    Seen under seed 0, with an onset of 41: a rate of 0.030 after 0.003, a gradient norm of 40 two steps later, a loss that goes
    from 2.4 to 4.3, relative updates of 0.065 (healthy 0.010).
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def rate(self, training: "Training", rate: float) -> float:
        """Raise the rate after the resume."""
        return rate * self.strength if training.step >= self.onset else rate


@fault(
    "optimizer_reset",
    group="resume",
    truth="optimizer_state_lost",
    symptoms=("optimizer_state_reset", "update_out_of_band", "seam_jump"),
    consequences=("loss_spike", "exploding_gradient"),
    dev=FaultStrength(onset=151),
    test=FaultStrength(onset=281),
)
class OptimizerReset(Change):
    """The training is stopped and resumed at the onset with the weights alone; the optimizer starts from scratch.

    The first updates depend on single gradients and are several times too large; the loss jumps for a step or two.

    Seen under seed 0: a loss of 2.5 and a gradient norm of 7.3 in the second step after the seam, 1.85 and 1.3 before it, and
    back after six more; the first step itself shows nothing.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Restore weights and step only."""
        training.model.load_state_dict(saved["model"])
        training.step = saved["step"]


@fault(
    "resume_data_restart",
    group="resume",
    truth="data_position_lost",
    symptoms=("repeated_batch",),
    consequences=("seam_jump",),
    dev=FaultStrength(onset=151),
    test=FaultStrength(onset=241),
)
class ResumeDataRestart(Change):
    """The training is stopped and resumed at the onset, while the loader starts at its first batch.

    The hashes and names of the first batches recur; the loss on batches seen once before is hardly lower.

    Seen under seed 0, with an onset of 41: the hashes of steps 1 to 10 again, and nothing in the loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Count batches from the resume."""
        return batch if training.step < self.onset else training.corpus.batch(training.step - self.onset + 1)


@fault(
    "resume_old_weights",
    group="resume",
    truth="weights_not_restored",
    symptoms=("weights_not_as_saved", "seam_jump", "weights_jump", "loss_spike"),
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band"),
    dev=FaultStrength(onset=151, strength=50),
    test=FaultStrength(onset=241, strength=30),
)
class ResumeOldWeights(Change):
    """The training is stopped and resumed at the onset with weights `strength` steps old; the count of steps continues.

    All weights go back a little at the seam, and so does the loss.

    Seen under seed 0: a loss of 2.03 after 1.85, and of 1.93 after eight more steps.
    """

    _old: dict[str, Any]

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def updated(self, training: "Training") -> None:
        """Keep the weights that the resume will find."""
        if training.step == self.onset - 1 - self.strength:
            self._old = {name: value.clone() for name, value in training.model.state_dict().items()}

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Restore the old weights."""
        super().restore(training, saved | {"model": self._old})


@fault(
    "resume_wrong_weights",
    group="resume",
    truth="weights_not_restored",
    symptoms=("weights_not_as_saved", "seam_jump", "weights_jump", "loss_spike"),
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band", "activation_drift", "dominant_tensor"),
    place=("blocks.1*", "blocks.2*", "block.1", "block.2"),
    dev=FaultStrength(onset=151, strength=1),
    test=FaultStrength(onset=281, strength=2),
)
class ResumeWrongWeights(Change):
    """The training is stopped and resumed at the onset; the saved state lacks the weights of block `strength`.

    That block has new random weights after the seam, and the loss jumps until they are learnt again.

    Seen under seed 0: a loss of 2.05 and a gradient norm of 4.5 after 1.85 and 1.3, and both back after three steps; with an
    onset of 41 norms in block 1 fall by a fifth and nothing shows in the loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop before the onset."""
        return replace(plan, resume_at=self.onset - 1)

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Restore everything but the block."""
        drawn = training.model.state_dict()
        found = {
            name: drawn[name].clone() if name.startswith(f"blocks.{self.strength:.0f}.") else saved["model"][name]
            for name in drawn
        }
        super().restore(training, saved | {"model": found})
