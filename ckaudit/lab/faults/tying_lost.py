"""A tie between embedding and head that a resume loses."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="weight_tying_lost",
    acceptable=("weights_not_restored",),
    symptoms=("parameter_count_changed", "seam_jump"),
    consequences=("optimizer_state_reset", "update_out_of_band"),
    place=("head*", "tokens*"),
    dev=Amount(onset=151),
    test=Amount(onset=281),
    detectable=50,
)
class TyingLost(Change):
    """Embedding and head are one matrix until the training is taken up again, with a model that has two, equal at first.

    From the onset on there is one more tensor to train, and the two drift apart while the loss looks healthy.

    Seen under seed 0, with an onset of 31: a tensor more in the first checkpoint after the seam; the loss goes on as before.
    """

    _resumed = False

    def plan(self, plan: Plan) -> Plan:
        """Tie embedding and head, and stop before the onset."""
        model = replace(plan.model, tied=True) if isinstance(plan.model, Gpt) else plan.model
        return replace(plan, model=model, resume_at=self.onset - 1)

    def save(self, training: "Training") -> dict[str, Any]:
        """Save as always; the next model is not tied."""
        self._resumed = True
        return super().save(training)

    def model(self, model: "nn.Module") -> None:
        """Make two matrices of one."""
        from torch.nn import Parameter

        if self._resumed:
            head: Any = model.get_submodule("head")
            head.weight = Parameter(head.weight.detach().clone())

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Take over the optimizer's state too; it has none of the new matrix, which comes last."""
        group = saved["optimizer"]["param_groups"][0]
        group["params"] = [*group["params"], len(group["params"])]
        super().restore(training, saved)
