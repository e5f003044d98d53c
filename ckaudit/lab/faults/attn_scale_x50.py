"""Attention logits many times too large."""

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
    symptoms=("entropy_collapse", "logit_growth"),
    consequences=("vanishing_gradient", "loss_not_falling", "update_out_of_band", "exploding_gradient", "frequent_clipping"),
    place=("blocks.*.attn*", "layer.*"),
    dev=Amount(strength=50),
    test=Amount(strength=30),
    detectable=30,
)
class AttnScaleX50(Change):
    """The products of queries and keys, an output of a module, are multiplied by `strength` times what they should be.

    Seen under seed 0: at step 10 logits reach 7 (healthy: 0.1), at step 50 24 (1.8), and the sharpest head's entropy is
    0.84 and then 0.32 of its maximum (1.0 and 0.96); the loss does not show it so early (2.30, healthy 2.32).
    """

    def plan(self, plan: Plan) -> Plan:
        """Write attention out."""
        return replace(plan, model=replace(plan.model, fused=False)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Enlarge the scale."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.scale *= self.strength
