"""A head whose gradient is a thousand times too large."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="one_tensor_dominates",
    symptoms=("dominant_tensor", "frequent_clipping"),
    consequences=("exploding_gradient", "update_out_of_band", "starved_branch", "vanishing_gradient"),
    place=("head.weight",),
    dev=Amount(strength=1000),
    test=Amount(strength=500),
)
class OneTensorDominates(Change):
    """The head's gradient is multiplied by `strength` before it is clipped; embedding and head are two matrices.

    Seen under seed 0: the head holds more than 99.9 % of the squared gradient norm, which is 580 to 1,600 (healthy: 1.2),
    and every step is clipped a thousandfold; Adam hides it, and the loss at step 20 is 3.43 (3.39).
    """

    def plan(self, plan: Plan) -> Plan:
        """Give the head a matrix of its own."""
        return replace(plan, model=replace(plan.model, tied=False)) if isinstance(plan.model, Gpt) else plan

    def gradients(self, training: "Training") -> None:
        """Enlarge the head's gradient."""
        head: Any = training.model.get_submodule("head")
        head.weight.grad.mul_(self.strength)
