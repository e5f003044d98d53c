"""Attention that is multiplied by zero."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="code",
    truth="dead_path",
    symptoms=("dead_parameter", "zero_gradients", "layer_not_contributing"),
    consequences=(
        *("vanishing_gradient", "weights_shrink", "uniform_heads", "update_out_of_band", "barely_moving", "activation_drift"),
    ),
    place=("blocks.1.attn*", "layer.1*"),
)
class ZeroProj(Change):
    """What the attention of block 1 adds to the stream is multiplied by zero, from the first step on.

    Its tensors have gradients of exactly zero, and only weight decay moves them.

    Seen under seed 0: gradients of six tensors are exactly 0 from the first step on, their relative update is 1e-4 at most
    where neighbours have 0.05; the loss is that of the healthy run to 0.01.
    """

    def model(self, model: "nn.Module") -> None:
        """Take the gain away."""
        attention: Any = model.get_submodule("blocks.1.attn")
        attention.gain = 0.0
