"""A block that is not trained."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="code",
    truth="frozen_by_mistake",
    symptoms=("frozen_parameter", "layer_not_contributing"),
    place=("blocks.1*", "block.1", "layer.1*"),
)
class FrozenLayer(Change):
    """The parameters of block 1 do not ask for a gradient, as if left over from a fine-tuning script.

    They have no gradient and never move, while the loss looks healthy.

    Seen under seed 0: eight tensors have no gradient and do not move; the loss is 0.02 higher at step 30.
    """

    def model(self, model: "nn.Module") -> None:
        """Freeze block 1."""
        model.get_submodule("blocks.1").requires_grad_(False)
