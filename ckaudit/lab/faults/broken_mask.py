"""Attention without its causal mask."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import Tensor, nn


@fault(
    group="code",
    truth="causal_mask_leaks",
    symptoms=("mask_leak", "loss_below_floor"),
    consequences=("entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping", "uniform_heads", "loss_spike"),
    place=("layer*", "blocks*"),
)
class BrokenMask(Change):
    """Every query of every block sees every key, also those of tokens that are to be predicted.

    Half of the attention lies above the diagonal from the first step on; the loss looks healthy until the model finds out.

    Seen under seed 0: an attention mass of 0.5 above the diagonal from step 10 on; the loss is not lower than that of the
    healthy run at step 100 (2.00, healthy 1.92).
    """

    def model(self, model: "nn.Module") -> None:
        """Let every query see every key."""
        import torch

        def visible(length: int) -> "Tensor":
            return torch.ones(length, length, dtype=torch.bool)

        attentions: list[Any] = [module for module in model.modules() if hasattr(module, "visible")]
        for attention in attentions:
            attention.visible = visible
