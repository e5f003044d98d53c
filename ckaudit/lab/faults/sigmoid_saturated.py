"""MLPs with a sigmoid that is driven to its ends."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="saturating_activation",
    acceptable=("init_too_large",),
    symptoms=("saturated_units", "weight_scale_off"),
    consequences=("zero_gradients", "layer_not_contributing", "activation_drift", "vanishing_gradient", "loss_not_falling"),
    place=("blocks.*.mlp*",),
    dev=Amount(strength=60),
    test=Amount(strength=40),
    harmless=True,
)
class SigmoidSaturated(Change):
    """MLPs have a sigmoid, and the weights before it are drawn `strength` times too large.

    Seen under seed 0: outputs of the sigmoid have a spread of 0.45 around their mean from the first step on, nearly all at
    0 or 1; on so small a task such units serve as well as others, and the loss is no worse at step 150 (1.81, healthy
    1.85).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take the sigmoid."""
        return replace(plan, model=replace(plan.model, activation="sigmoid")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Enlarge what feeds it."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.mlp.up.weight.data.mul_(self.strength)
