"""Routers that like one expert from the start, with nothing to balance the load."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="router_collapse",
    symptoms=("router_imbalance", "dropped_tokens"),
    consequences=("dead_parameter", "zero_gradients", "barely_moving", "frozen_parameter", "layer_not_contributing"),
    dev=Amount(strength=8),
    test=Amount(strength=6),
    family="moe",
)
class RouterCollapse(Change):
    """Each router has a bias, which starts at `strength` for its first expert; the load-balance loss is left out.

    Seen under seed 0: all 2,048 tokens of a batch want the first expert from the first step to at least the hundredth, 69 %
    are dropped, and three of four experts get no gradient; the loss does not show it (2.07 at step 100, healthy: 2.08).
    """

    def model(self, model: "nn.Module") -> None:
        """Add the biases and take the loss away."""
        from torch import nn, zeros

        from ckaudit.lab.models.switch import Switch

        for layer in model.modules():
            if isinstance(layer, Switch):
                bias = zeros(layer.router.out_features)
                bias[0] = self.strength
                layer.router.bias = nn.Parameter(bias)
                layer.balance = 0.0
