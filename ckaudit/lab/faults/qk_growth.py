"""Query and key weights that grow at every step."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
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
    dev=Amount(onset=100, strength=1.04),
    test=Amount(onset=200, strength=1.03),
    detectable=30,
)
class QkGrowth(Change):
    """From step `onset` on query and key weights are multiplied by `strength` after each update.

    Seen under seed 0: 50 steps after the onset logits reach 135 (healthy: 6), the sharpest head's entropy is 0.11 of its
    maximum (0.81) and query weights have twice their spread; the loss is 1.91 (1.85).
    """

    def updated(self, training: "Training") -> None:
        """Let the weights grow from the onset on."""
        if training.step >= self.onset:
            blocks: Any = training.model.get_submodule("blocks")
            for block in blocks:
                block.attn.q.weight.data.mul_(self.strength)
                block.attn.k.weight.data.mul_(self.strength)
