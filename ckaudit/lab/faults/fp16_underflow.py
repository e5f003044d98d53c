"""Gradients too small for half precision."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="gradient_underflow",
    symptoms=("zero_gradients", "dead_parameter"),
    consequences=(
        *("vanishing_gradient", "barely_moving", "update_out_of_band", "loss_not_falling"),
        *("layer_not_contributing", "uniform_heads"),
    ),
    dev=Amount(strength=1e-5),
    test=Amount(strength=1e-4),
)
class Fp16Underflow(Change):
    """Gradients pass through half precision at `strength` of their size, as without a loss scale or behind a long mean.

    What is below 3e-8 there becomes exactly zero: most elements in most steps, and whole tensors.

    Seen under seed 0: whole tensors with gradients of 0 in every checkpoint, updates of those a hundredth of the healthy
    ones, a loss of 2.76 at step 60 (healthy 2.18).
    """

    def gradients(self, training: "Training") -> None:
        """Round the gradients to half precision."""
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_((parameter.grad * self.strength).half().float() / self.strength)
