"""A deep stack of sigmoids, each of which passes on a quarter of the gradient at most."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Mlp, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="saturating_activation",
    acceptable=("residual_path_broken",),
    symptoms=("vanishing_gradient", "saturated_units", "loss_not_falling"),
    consequences=("update_out_of_band", "barely_moving", "dead_parameter", "layer_not_contributing", "activation_drift"),
    dev=Amount(strength=8),
    test=Amount(strength=10),
    family="mlp",
)
class SigmoidStack(Change):
    """The classifier has `strength` layers, with a sigmoid in place of each ReLU.

    Seen under seed 0: the gradient shrinks two to six times from layer to layer back and is 2,000 to 5,000 times smaller in
    the first than in the last; the loss stays at 1.79, the log of six classes, for 100 steps (healthy: 0.41), and is 1.71
    at step 200 (0.18).
    """

    def plan(self, plan: Plan) -> Plan:
        """Add layers."""
        return replace(plan, model=replace(plan.model, depth=int(self.strength))) if isinstance(plan.model, Mlp) else plan

    def model(self, model: "nn.Module") -> None:
        """Take sigmoids."""
        from torch import nn

        layers: Any = model.get_submodule("layers")
        for layer in layers:
            layer.act = nn.Sigmoid()
