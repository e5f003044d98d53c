"""Tokens that change their meaning."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="data_distribution_shift",
    symptoms=("token_drift", "loss_spike"),
    consequences=(
        *("overfitting", "exploding_gradient", "frequent_clipping", "activation_drift", "update_out_of_band"),
        *("dominant_tensor", "loss_not_falling"),
    ),
    dev=Amount(onset=180, strength=1.0),
    test=Amount(onset=300, strength=0.4),
)
class Drift(Change):
    """From the onset on a share `strength` of the vocabulary is permuted, in inputs and targets, as by another tokenizer.

    The training loss jumps and is learnt down again, while the validation loss, on the old tokens, stays high.

    Seen under seed 0, with an onset of 61: a loss of 8.4 after 2.2 and of 3.0 after twenty steps, a gradient norm of 28, a
    validation loss of 5.1 (healthy 2.1).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Rename the tokens."""
        import torch

        if training.step < self.onset:
            return batch
        count = training.corpus.vocabulary
        dice = torch.Generator().manual_seed(training.plan.seed)
        chosen = torch.randperm(count, generator=dice)[: int(self.strength * count)]
        names = torch.arange(count)
        names[chosen] = chosen.roll(1)
        return replace(batch, inputs=names[batch.inputs], targets=names[batch.targets])
