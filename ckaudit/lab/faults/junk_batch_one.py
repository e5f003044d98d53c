"""A single batch of random tokens."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="bad_batch",
    symptoms=("loss_spike", "token_drift"),
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band", "activation_drift", "dominant_tensor"),
    dev=Amount(onset=220, strength=1.0),
    test=Amount(onset=310, strength=0.5),
)
class JunkBatchOne(Change):
    """In the batch of one step a share `strength` of the rows is random tokens, their targets the next ones.

    The loss jumps for one step, with a gradient of unusual size; weights and later losses hardly notice.

    Seen under seed 0, with an onset of 41: a loss of 6.6 and a gradient norm of 10 in one step, 2.6 and 4 in the next, and
    all as before two steps later.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace the tokens of the first rows."""
        import torch

        from ckaudit.lab.chance import swapped

        if training.step != self.onset:
            return batch
        stream = torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1)  # (B, T + 1)
        count = int(self.strength * len(stream))
        stream = torch.cat((swapped(stream[:count], training, share=1.0), stream[count:]))
        return replace(batch, inputs=stream[:, :-1].contiguous(), targets=stream[:, 1:].contiguous())
