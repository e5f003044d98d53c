"""Attention whose logits are too large, too small, or grow."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@fault(
    "attn_no_scale",
    group="model",
    truth="saturated_attention",
    acceptable=("init_too_large",),
    symptoms=("logit_growth", "entropy_collapse"),
    consequences=("vanishing_gradient", "exploding_gradient", "update_out_of_band", "weight_scale_off", "loss_not_falling"),
    place=("blocks.*.attn*", "layer.*"),
    dev=FaultStrength(strength=7),
    test=FaultStrength(strength=5),
)
class AttnNoScale(Change):
    """A block has one large head, whose logits, an output of a module, are plain products of queries and keys.

    Query and key weights are drawn `strength` times larger than the others: 7 gives 48 channels of about unit variance.
    Seen under seed 0: at step 10 logits reach 30 (healthy: 0.1) and the sharpest head's entropy is 0.03 of its maximum
    (1.0); at step 100 it is still 0.10 (0.91) and the loss 2.06 (1.94).
    """

    def plan(self, plan: Plan) -> Plan:
        """Use one head, with explicit attention."""
        if not isinstance(plan.model, Gpt):
            return plan
        return replace(plan, model=replace(plan.model, heads=1, kv_heads=None, fused=False))

    def model(self, model: "nn.Module") -> None:
        """Remove the scale."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.scale = 1.0
            block.attn.q.weight.data.mul_(self.strength)
            block.attn.k.weight.data.mul_(self.strength)


@fault(
    "attn_scale_x50",
    group="model",
    truth="saturated_attention",
    symptoms=("entropy_collapse", "logit_growth"),
    consequences=("vanishing_gradient", "loss_not_falling", "update_out_of_band", "exploding_gradient", "frequent_clipping"),
    place=("blocks.*.attn*", "layer.*"),
    dev=FaultStrength(strength=50),
    test=FaultStrength(strength=30),
    detectable=30,
)
class AttnScaleX50(Change):
    """The products of queries and keys, an output of a module, have `strength` times the correct scale.

    Seen under seed 0: at step 10 logits reach 7 (healthy: 0.1), at step 50 24 (1.8), and the sharpest head's entropy is 0.84 and
    then 0.32 of its maximum (1.0 and 0.96); the loss does not show it so early (2.30, healthy 2.32).
    """

    def plan(self, plan: Plan) -> Plan:
        """Use explicit attention."""
        return replace(plan, model=replace(plan.model, fused=False)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Enlarge the scale."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.scale *= self.strength


@fault(
    "qk_growth",
    group="model",
    truth="attention_logits_grow",
    acceptable=("weights_changed_outside_optimizer",),
    symptoms=("logit_growth", "weights_grow", "entropy_collapse"),
    consequences=(
        "dead_parameter",
        "zero_gradients",
        "exploding_gradient",
        "vanishing_gradient",
        "frequent_clipping",
        "update_out_of_band",
        "weights_jump",
        "loss_spike",
        "loss_rises",
    ),
    place=("blocks.*.attn*", "layer.*"),
    dev=FaultStrength(onset=100, strength=1.04),
    test=FaultStrength(onset=200, strength=1.03),
    detectable=30,
)
class QkGrowth(Change):
    """From step `onset` on, query and key weights are multiplied by `strength` after each update.

    Seen under seed 0: 50 steps after the onset logits reach 135 (healthy: 6), the sharpest head's entropy is 0.11 of its maximum
    (0.81) and query weights have twice their spread; the loss is 1.91 (1.85).
    """

    def updated(self, training: "Training") -> None:
        """Let the weights grow from the onset on."""
        if training.step >= self.onset:
            blocks: Any = training.model.get_submodule("blocks")
            for block in blocks:
                block.attn.q.weight.data.mul_(self.strength)
                block.attn.k.weight.data.mul_(self.strength)


@fault(
    "unigram_plateau",
    group="model",
    truth="context_not_used",
    acceptable=("dead_path", "capacity_too_small"),
    symptoms=("starved_branch", "loss_not_falling", "layer_not_contributing", "uniform_heads"),
    consequences=("vanishing_gradient", "dead_parameter", "barely_moving", "update_out_of_band", "frozen_parameter"),
    dev=FaultStrength(strength=1e-4),
    test=FaultStrength(strength=1e-5),
    detectable=100,
)
class UnigramPlateau(Change):
    """The output of attention is multiplied by `strength`, in every block.

    Seen under seed 0: at step 100 attention's matrices get a gradient of 1e-5 (the MLPs': 0.06), and the loss begins to stand
    still near what single tokens and their places tell, at 1.98 on held-out rows at step 200 (healthy: 1.69); up to step 50
    nothing stands out.
    """

    def model(self, model: "nn.Module") -> None:
        """Weaken attention."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.gain = self.strength
