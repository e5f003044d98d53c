"""Weight decay that becomes too strong in the middle of the run."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="optimization",
    truth="weight_decay_too_high",
    symptoms=("weights_shrink", "loss_rises"),
    consequences=(
        "dead_parameter",
        "dead_units",
        "loss_not_falling",
        "uniform_heads",
        "starved_branch",
        "vanishing_gradient",
        "activation_drift",
        "update_out_of_band",
        "loss_spike",
        "barely_moving",
    ),
    dev=Amount(onset=150, strength=20),
    test=Amount(onset=200, strength=15),
    detectable=40,
)
class WeightDecayLate(Change):
    """From step `onset` on AdamW's weight decay is `strength`.

    Seen under seed 0: updates jump to 5 % of every tensor at the onset (healthy: 0.04 to 2.4 %), all weights shrink by that
    much a step, and the loss climbs from 1.8 to 3.7 in 40 steps.
    """

    def update(self, training: "Training") -> None:
        """Raise the decay from the onset on."""
        if training.step >= self.onset:
            for group in training.optimizer.param_groups:
                group["weight_decay"] = self.strength
        training.update()
