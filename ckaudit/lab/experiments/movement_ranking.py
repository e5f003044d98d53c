"""EXP-11: which weights moved furthest from where they started."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn


class LeftOut(Change):
    """The optimizer is not given the MLP of block 1."""

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave two matrices out."""
        return [weight for name, weight in model.named_parameters() if not name.startswith("blocks.1.mlp.")]


@experiment(
    "EXP-11", look=("train_loss_raw", "relative_movement", "movement_rank", "moving_share", "gradient_norm/blocks.1.mlp.*")
)
def movement_ranking() -> Mapping[str, Change]:
    """Which weights moved furthest from step 0, and which not at all.

    In the second arm the optimizer was never given the two matrices of the MLP in block 1. They have gradients like all
    others, the loss falls, and no curve of the loss would tell; the ranking by relative movement does, from the tenth step
    on.

    Look at the two lists from their ends. In a healthy training the head and the projections that write to the stream are at
    the top, since they start small, with the gains of norms at the bottom, since they start at one. A tensor at exactly 0
    with a gradient is not slow but forgotten.
    """
    return {"healthy": Change(), "two matrices left out": LeftOut()}
