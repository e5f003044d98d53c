"""A causal mask that leaks in one block."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor, nn


@fault(
    group="code",
    truth="causal_mask_leaks",
    symptoms=("mask_leak", "loss_below_floor"),
    consequences=("entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping", "uniform_heads", "loss_spike"),
    place=("layer.1*", "blocks.1*"),
    dev=Amount(strength=8),
    test=Amount(strength=3),
)
class MaskLeakOneBlock(Change):
    """Queries of block 1 see `strength` keys beyond their own; attention is fused, so that no module shows its weights.

    Only that block puts weight above the diagonal, and the loss falls below what can be known.

    Seen under seed 10: a mass of 0.12 above the diagonal in block 1 alone, from the first checkpoint on; under seed 0 a loss
    of 1.79 at step 100 (healthy 1.92).
    """

    def plan(self, plan: Plan) -> Plan:
        """Fuse attention."""
        return replace(plan, model=replace(plan.model, fused=True)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Let the queries of block 1 see further."""
        import torch

        def visible(length: int) -> "Tensor":
            return torch.ones(length, length, dtype=torch.bool).tril(int(self.strength))

        attention: Any = model.get_submodule("blocks.1.attn")
        attention.visible = visible
