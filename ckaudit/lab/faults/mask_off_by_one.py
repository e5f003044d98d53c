"""A causal mask moved by one."""

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
class MaskOffByOne(Change):
    """Every query sees the next key besides, which is the very token that it is to predict.

    A band above the diagonal gets attention from the first step on, and the loss falls towards zero.

    Seen under seed 0: a mass of 0.06 to 0.12 above the diagonal from step 10 on; a loss of 0.82 at step 100 (healthy 1.92).
    """

    def model(self, model: "nn.Module") -> None:
        """Let every query see the next key."""
        import torch

        def visible(length: int) -> "Tensor":
            return torch.ones(length, length, dtype=torch.bool).tril(1)

        attentions: list[Any] = [module for module in model.modules() if hasattr(module, "visible")]
        for attention in attentions:
            attention.visible = visible
