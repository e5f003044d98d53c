"""Initial matrices of one number."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="initialization",
    truth="symmetry_not_broken",
    symptoms=("weights_alike", "vanishing_gradient", "dead_parameter"),
    consequences=(
        "loss_not_falling",
        "layer_not_contributing",
        "uniform_heads",
        "update_out_of_band",
        "barely_moving",
        "dead_units",
        "zero_gradients",
    ),
    dev=Amount(strength=0.01),
    test=Amount(strength=0.02),
)
class InitConst(Change):
    """All elements of all matrices are `strength`.

    Seen under seed 0: weights of the blocks have a spread of zero and gradients of 1e-8, from step 50 on 1e-10 (healthy:
    0.1), since all units are the same unit; the loss stops at 2.86, the entropy of single tokens (2.32 at step 50).
    """

    def model(self, model: "nn.Module") -> None:
        """Fill the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.fill_(self.strength)
