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
    consequences=("loss_not_falling", "activation_drift", "uniform_heads", "weights_alike", "weights_jump"),
    dev=Amount(strength=1e-4),
    test=Amount(strength=3e-4),
)
class InitTiny(Change):
    """All matrices are drawn `strength` times as large as they should be.

    SEEN
    """

    def model(self, model: "nn.Module") -> None:
        """Shrink the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)
