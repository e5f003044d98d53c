"""Attention that adds next to nothing, so that each token is predicted from the one before it alone."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="context_not_used",
    acceptable=("dead_path", "capacity_too_small"),
    symptoms=("starved_branch", "loss_not_falling", "layer_not_contributing", "uniform_heads"),
    consequences=("vanishing_gradient", "dead_parameter", "barely_moving", "update_out_of_band", "frozen_parameter"),
    dev=Amount(strength=1e-4),
    test=Amount(strength=1e-5),
    detectable=100,
)
class UnigramPlateau(Change):
    """What attention adds to the stream is multiplied by `strength`, in every block.

    Seen under seed 0: at step 100 attention's matrices get a gradient of 1e-5 (the MLPs': 0.06), and the loss begins to
    stand still near what single tokens and their places tell, at 1.98 on held-out rows at step 200 (healthy: 1.69); up to
    step 50 nothing stands out.
    """

    def model(self, model: "nn.Module") -> None:
        """Weaken attention."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.attn.gain = self.strength
