"""A step after which most units of one MLP never fire again."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@fault(
    group="initialization",
    truth="dead_units",
    acceptable=("weights_changed_outside_optimizer",),
    symptoms=("dead_units", "zero_gradients", "weights_jump"),
    consequences=("dead_parameter", "layer_not_contributing", "loss_spike", "activation_drift", "vanishing_gradient"),
    place=("blocks.1.mlp*",),
    dev=Amount(onset=150, strength=0.9),
    test=Amount(onset=250, strength=0.75),
    detectable=50,
)
class DeadReluLate(Change):
    """MLPs with ReLU have a bias before it; at step `onset` a share `strength` of the second block's falls to -20.

    Seen under seed 0: at the onset the bias moves by 99.6 % of its size in one step and the loss rises by 0.1, for one
    step; from the next checkpoint on 216 of the block's 240 units never fire, and the loss goes on as before.
    """

    def plan(self, plan: Plan) -> Plan:
        """Take ReLU."""
        return replace(plan, model=replace(plan.model, activation="relu")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Add the biases."""
        from torch import nn, zeros

        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.mlp.up.bias = nn.Parameter(zeros(block.mlp.up.out_features))

    def updated(self, training: "Training") -> None:
        """Lower most biases of one block, once."""
        if training.step == self.onset:
            bias = training.model.get_parameter("blocks.1.mlp.up.bias").data
            bias[: round(len(bias) * self.strength)] = -20.0
