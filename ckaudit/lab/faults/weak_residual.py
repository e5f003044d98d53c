"""Blocks that pass on only part of what comes to them."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="model",
    truth="residual_path_broken",
    symptoms=("vanishing_gradient", "activation_drift"),
    consequences=("loss_not_falling", "uniform_heads", "update_out_of_band", "dead_units", "zero_gradients"),
    dev=Amount(strength=0.2),
    test=Amount(strength=0.25),
)
class WeakResidual(Change):
    """On its way around attention and around the MLP the stream is multiplied by `strength`, in every block.

    Seen under seed 0: at step 20 the first block's gradient is 34 times smaller than the last one's (healthy: equal), at
    step 50 only 4 times, and the stream is no larger behind later blocks; the loss is 2.85 at step 50 (2.32).
    """

    def model(self, model: "nn.Module") -> None:
        """Weaken the way around."""
        blocks: Any = model.get_submodule("blocks")
        for block in blocks:
            block.skip = self.strength
