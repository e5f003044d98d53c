"""MLPs whose ReLU never fires, because their biases start far below zero."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="initialization",
    truth="dead_units",
    symptoms=("dead_units", "dead_parameter", "zero_gradients"),
    consequences=("layer_not_contributing", "barely_moving", "vanishing_gradient", "frozen_parameter", "weights_alike"),
    place=("blocks.*.mlp*",),
    dev=Amount(strength=10),
    test=Amount(strength=6),
)
class DeadRelu(Change):
    """MLPs with ReLU have a bias before it, which starts at minus `strength`.

    Seen under seed 0: all units of all blocks are silent for good, and 12 of 31 tensors get a gradient of exactly zero from
    the first step on; the loss goes on almost as in the healthy run (4.15 at step 10, healthy: 4.09).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take ReLU."""
        return replace(plan, model=replace(plan.model, activation="relu")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Add the biases."""
        from torch import full, nn

        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.mlp.up.bias = nn.Parameter(full((block.mlp.up.out_features,), -float(self.strength)))
