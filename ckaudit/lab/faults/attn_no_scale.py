"""Attention logits that are not divided by the root of the head's size."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="saturated_attention",
    symptoms=("logit_growth", "entropy_collapse"),
    consequences=("vanishing_gradient", "exploding_gradient", "update_out_of_band"),
    place=("blocks.*.attn*", "layer.*"),
    dev=Amount(strength=1),
    test=Amount(strength=2),
    detectable=60,
)
class AttnNoScale(Change):
    """A block has `strength` large heads, whose logits are plain products of queries and keys.

    SEEN
    """

    def plan(self, plan: Plan) -> Plan:
        """Make heads larger."""
        if not isinstance(plan.model, Gpt):
            return plan
        return replace(plan, model=replace(plan.model, heads=int(self.strength), kv_heads=None))

    def model(self, model: "nn.Module") -> None:
        """Take the scale away."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.scale = 1.0
