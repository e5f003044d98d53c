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
    """A block has one large head, whose logits, an output of a module, are plain products of queries and keys.

    Query and key weights are drawn `strength` times larger than the others: 7 gives 48 channels of about unit variance.
    Seen under seed 0: at step 10 logits reach 30 (healthy: 0.1) and the sharpest head's entropy is 0.03 of its maximum
    (1.0); at step 100 it is still 0.10 (0.91) and the loss 2.06 (1.94).
    """

    def plan(self, plan: Plan) -> Plan:
        """Make one head of all, and write attention out."""
        if not isinstance(plan.model, Gpt):
            return plan
        return replace(plan, model=replace(plan.model, heads=1, kv_heads=None, fused=False))

    def model(self, model: "nn.Module") -> None:
        """Take the scale away."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.scale = 1.0
            block.attn.q.weight.data.mul_(self.strength)
            block.attn.k.weight.data.mul_(self.strength)
