"""A block that the optimizer does not know."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="code",
    truth="not_in_optimizer",
    symptoms=("missing_in_optimizer", "barely_moving", "layer_not_contributing"),
    place=("blocks.2*", "block.2"),
)
class MissingInOptimizer(Change):
    """The parameters of block 2 are not given to the optimizer: they get gradients and never move.

    The loss looks healthy.

    Seen under seed 0: eight trainable tensors in no group, with gradients and relative updates of 0; the loss is that of the
    healthy run to 0.01.
    """

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave block 2 out."""
        return [parameter for name, parameter in model.named_parameters() if not name.startswith("blocks.2.")]
