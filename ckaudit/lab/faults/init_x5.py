"""Initial matrices a few times too large."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="initialization",
    truth="init_too_large",
    symptoms=("weight_scale_off", "initial_loss_off"),
    consequences=("update_out_of_band", "logit_growth"),
    dev=Amount(strength=5),
    test=Amount(strength=4),
    harmless=True,
)
class InitX5(Change):
    """All matrices are drawn `strength` times too large.

    Seen under seed 0: weights have a spread of 0.1 (healthy: 0.02) and the first loss is 4.78 (log of the vocabulary:
    4.56); the loss is lower than the healthy one ever after, 1.78 at step 100 (1.94).
    """

    def model(self, model: "nn.Module") -> None:
        """Enlarge the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)
