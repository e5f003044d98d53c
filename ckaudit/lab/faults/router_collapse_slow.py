"""A load-balance loss with the wrong sign, which slowly gathers all tokens at few experts."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="model",
    truth="router_collapse",
    symptoms=("router_imbalance", "dropped_tokens"),
    consequences=("dead_parameter", "zero_gradients", "barely_moving", "frozen_parameter", "layer_not_contributing"),
    dev=Amount(onset=100, strength=0.02),
    test=Amount(onset=200, strength=0.01),
    detectable=50,
    family="moe",
)
class RouterCollapseSlow(Change):
    """From step `onset` on the load-balance loss is weighted with minus `strength`, so that the liked are liked more.

    Seen under seed 0: 11 steps after the onset the second block's router sends 99 % of the tokens to one expert, after 21
    all, while the first block's is only uneven (52 %); dropped tokens rise from 5 % to 45 %, and the loss even falls, by
    what the turned term takes from it.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Turn the weight at the onset."""
        if training.step == self.onset:
            from ckaudit.lab.models.switch import Switch

            for layer in training.model.modules():
                if isinstance(layer, Switch):
                    layer.balance = -self.strength
        return batch
