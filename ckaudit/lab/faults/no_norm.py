"""A model without norms."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="normalization_missing",
    symptoms=("activation_drift", "vanishing_gradient", "loss_spike", "exploding_gradient"),
    consequences=(
        "loss_not_falling",
        "update_out_of_band",
        "uniform_heads",
        "logit_growth",
        "dead_parameter",
        "frequent_clipping",
        "weights_grow",
    ),
)
class NoNorm(Change):
    """Nothing norms the stream: not before attention, not before the MLP, not before the head.

    Seen under seed 0: the first gradients are 40 times smaller than in the healthy run, from step 50 on the stream is three
    times as large behind each block as before it (healthy: 1.3 times); the loss is 2.85 at step 50 (2.32) and 2.58 at step
    80 (2.08).
    """

    def model(self, model: "nn.Module") -> None:
        """Take the norms away."""
        from torch import nn

        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn_norm, block.mlp_norm = nn.Identity(), nn.Identity()
        model.norm = nn.Identity()
