"""Blocks without a way around them."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="residual_path_broken",
    symptoms=("vanishing_gradient", "loss_not_falling"),
    consequences=(
        "layer_not_contributing",
        "activation_drift",
        "dead_parameter",
        "uniform_heads",
        "update_out_of_band",
        "barely_moving",
        "exploding_gradient",
    ),
)
class NoResidual(Change):
    """Attention and MLP replace the stream in place of adding to it.

    Seen under seed 0: at step 20 the gradient of the first block is 1,700 times smaller than the last one's (healthy:
    equal), at step 100 4,000 times; the loss stops at 2.85 after 50 steps (1.94 at step 100).
    """

    def model(self, model: "nn.Module") -> None:
        """Cut the way around."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.skip = 0.0
