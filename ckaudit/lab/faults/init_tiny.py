"""Initial matrices so small that nothing passes through them."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="initialization",
    truth="init_too_small",
    symptoms=("weight_scale_off", "update_out_of_band", "vanishing_gradient", "dead_parameter"),
    consequences=(
        "initialization_lost",
        "loss_not_falling",
        "activation_drift",
        "redundant_heads",
        "uniform_heads",
        "weights_alike",
        "weights_jump",
    ),
    dev=Amount(strength=1e-4),
    test=Amount(strength=3e-4),
)
class InitTiny(Change):
    """All matrices are drawn `strength` times as large as they should be.

    Seen under seed 0: the first gradient norm is 0.007 (healthy: 1.25), weights have a spread of 2e-6, attention logits are
    1e-9 until step 20; the loss is 2.6 at step 100 (1.9).
    """

    def model(self, model: "nn.Module") -> None:
        """Shrink the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)
