"""The missing `zero_grad`."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="gradients_not_zeroed",
    symptoms=("gradients_carried_over", "exploding_gradient", "frequent_clipping"),
    consequences=(
        *("entropy_collapse", "activation_drift", "loss_not_falling", "logit_growth", "dominant_tensor", "update_out_of_band"),
    ),
    detectable=30,
)
class NoZeroGrad(Change):
    """Gradients are never cleared, so that each step applies its own and what is left of those before it.

    What clipping has let through stays in: the norm of the gradient is higher, and its direction hardly changes with the batch.

    Seen under seed 0: a gradient norm of 1.2 to 2.2 that never falls below 1, updates twice as large, outputs of an MLP ten
    times as large, entropies of 0.77 at step 70 (healthy 0.95), a loss of 2.19 at step 150 (healthy 1.84).
    """

    def zero(self, training: "Training") -> None:
        """Leave the gradients as they are."""
