"""Attention that is sharp by design."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from torch import nn


@control()
class SharpHeadsByDesign(Change):
    """The products of queries and keys are scaled four times as high as usual, from the first step on.

    It looks ill because attention logits are large and heads become sharp early: the model is trained with this scale, and
    its loss is no worse.
    """

    def model(self, model: "nn.Module") -> None:
        """Raise the scale of every block."""
        for block in model.blocks:  # type: ignore[union-attr]
            block.attn.scale *= 4
