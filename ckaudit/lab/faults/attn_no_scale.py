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
    acceptable=("init_too_large",),
    symptoms=("logit_growth", "entropy_collapse"),
    consequences=("vanishing_gradient", "exploding_gradient", "update_out_of_band", "weight_scale_off", "loss_not_falling"),
    place=("blocks.*.attn*", "layer.*"),
    dev=Amount(strength=7),
    test=Amount(strength=5),
)
class AttnNoScale(Change):
    """A block has one large head, whose logits are plain products of queries and keys.

    Query and key weights are drawn `strength` times larger than the others: 7 gives 48 channels of about unit variance.
    SEEN
    """

    def plan(self, plan: Plan) -> Plan:
        """Make one head of all."""
        return replace(plan, model=replace(plan.model, heads=1, kv_heads=None)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Take the scale away."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.scale = 1.0
            block.attn.q.weight.data.mul_(self.strength)
            block.attn.k.weight.data.mul_(self.strength)
