"""An entropy that takes the log of zero."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="nonfinite_operation",
    symptoms=("nonfinite_values",),
    consequences=("loss_not_falling", "hidden_nonfinite", "impossible_value"),
    dev=Amount(onset=160, strength=30),
    test=Amount(onset=240, strength=60),
    detectable=40,
)
class LogOfZero(Change):
    """From the onset on the loss has a term for the entropy of the prediction, sharpened `strength` times, written as p log p.

    It is harmless until a probability is so small that it becomes zero: then 0 log 0 is NaN, in the loss and all that follows.

    Seen under seed 0, with an onset of 31: NaN at once, for probabilities that sharp are zero.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Add the term."""
        loss = super().loss(training, logits, batch)
        if training.step < self.onset:
            return loss
        sharpened = (logits * self.strength).softmax(-1)
        return loss + 1e-3 * (sharpened * sharpened.log()).sum(-1).mean()
