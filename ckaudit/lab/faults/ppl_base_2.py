"""A perplexity in another base than its loss."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="records",
    truth="metric_computed_wrongly",
    symptoms=("contradicted_claim",),
    consequences=("contract_violation", "impossible_value"),
    dev=Amount(strength=2.0),
    test=Amount(onset=250, strength=2.0),
    detectable=25,
)
class PplBase2(Change):
    """From the onset on the logged perplexity is `strength` to the power of a loss in nats; before it is right.

    At a held-out loss of 1.5 nats it is 2.8 where it should be 4.5.
    """

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Log a perplexity beside every held-out loss."""
        from math import e

        if "val_loss" not in values:
            return values
        base = self.strength if training.step >= self.onset else e
        return values | {"val_ppl": base ** values["val_loss"]}
