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
    consequences=("loss_not_falling", "layer_not_contributing", "uniform_heads", "update_out_of_band", "barely_moving"),
    dev=Amount(strength=0.01),
    test=Amount(strength=0.02),
)
class InitConst(Change):
    """All elements of all matrices are `strength`.

    SEEN
    """

    def model(self, model: "nn.Module") -> None:
        """Fill the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.fill_(self.strength)
