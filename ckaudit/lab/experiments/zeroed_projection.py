"""EXP-4: one projection is multiplied by zero."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn


class ZeroedAttention(Change):
    """What attention of block 1 adds to the stream is multiplied by zero."""

    def model(self, model: "nn.Module") -> None:
        """Set the gain."""
        attention: Any = model.get_submodule("blocks.1.attn")
        attention.gain = 0.0


class ZeroWeight(Change):
    """The output projection of attention in block 1 starts as zeros, and learns."""

    def model(self, model: "nn.Module") -> None:
        """Overwrite the weight."""
        from torch.nn.init import zeros_

        zeros_(model.get_parameter("blocks.1.attn.out.weight"))


@experiment(
    "EXP-4",
    look=("train_loss_raw", "gradient_norm/blocks.1.*", "relative_movement/blocks.1.attn.*", "moving_share", "waterfall_ratio"),
)
def zeroed_projection() -> Mapping[str, Change]:
    """One projection is cut off: what lies before it gets no gradient.

    In one arm the output of attention in block 1 is multiplied by zero, for good. Its four matrices and the norm in front of
    them get a gradient of exactly zero; the residual stream carries the rest, so that the loss falls nearly
    as well. In the other arm only the weight of the output projection starts as zeros: at the first step queries, keys and
    values get nothing, the projection itself does, and from the second step on all of them learn. The first is a fault, the
    second a common initialization.

    Look at the gradient norms of block 1, tensor by tensor, at step 10, and at the relative movement at the end.
    The weights without a gradient still shrink a little, by weight decay, all by the same share. The projection that started
    as zeros is missing there: nothing can be related to a norm of zero.
    """
    return {"healthy": Change(), "cut off for good": ZeroedAttention(), "starts as zeros": ZeroWeight()}
