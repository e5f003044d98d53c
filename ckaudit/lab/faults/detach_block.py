"""A gradient that is cut in the middle of the model."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor, nn


@fault(
    group="code",
    truth="gradient_path_cut",
    acceptable=("frozen_by_mistake", "dead_path"),
    symptoms=("dead_parameter", "vanishing_gradient", "frozen_parameter", "layer_not_contributing"),
    consequences=("barely_moving",),
    place=("blocks.0*", "block.0", "tokens*"),
    dev=Amount(strength=1),
    test=Amount(strength=2),
)
class DetachBlock(Change):
    """The stream is detached before block `strength`, so that neither the blocks before it nor the embeddings get a gradient.

    The forward pass is whole: the loss falls, only less.

    Seen under seed 0: ten tensors have no gradient and do not move; at step 60 the loss is 2.32 instead of 2.18.
    """

    def model(self, model: "nn.Module") -> None:
        """Detach what the block is given."""
        block = model.get_submodule(f"blocks.{self.strength:.0f}")
        computed = block.forward

        def cut(x: "Tensor") -> "Tensor":
            return computed(x.detach())

        block.forward = cut
