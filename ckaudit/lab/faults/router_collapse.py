"""A router that begins with a strong liking for one expert."""

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
    """Each router has a bias, which starts at `strength` for its first expert and at zero for the others.

    SEEN
    """

    def model(self, model: "nn.Module") -> None:
        """Add the biases."""
        from torch import nn, zeros

        for name, router in model.named_modules():
            if name.endswith(".router") and isinstance(router, nn.Linear):
                bias = zeros(router.out_features)
                bias[0] = self.strength
                router.bias = nn.Parameter(bias)
