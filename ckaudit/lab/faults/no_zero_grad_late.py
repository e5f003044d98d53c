"""A `zero_grad` that is lost on the way."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="code",
    truth="gradients_not_zeroed",
    symptoms=("gradients_carried_over", "exploding_gradient", "frequent_clipping", "loss_spike"),
    consequences=(
        *("entropy_collapse", "activation_drift", "loss_not_falling", "logit_growth", "dominant_tensor", "update_out_of_band"),
    ),
    dev=Amount(onset=150),
    test=Amount(onset=230),
    detectable=30,
)
class NoZeroGradLate(Change):
    """Gradients are not cleared any more from the onset on, as in a branch of the loop that forgets it.

    From then on each step applies its own gradient and what clipping has let through of those before it.

    Seen under seed 0, with an onset of 51: a gradient norm that goes from 0.7 to a steady 1.6 to 1.9, updates twice as large,
    a loss 0.3 higher after 70 steps.
    """

    def zero(self, training: "Training") -> None:
        """Clear the gradients before the onset only."""
        if training.step < self.onset:
            super().zero(training)
