"""A shard of random tokens."""

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
    dev=Amount(onset=150, strength=6),
    test=Amount(onset=270, strength=4),
)
class JunkShard(Change):
    """For `strength` steps from the onset on the batches are random tokens, their targets the next ones.

    The loss jumps above that of a model that knows nothing, the tokens are spread over the whole vocabulary, and both recover.

    Seen under seed 0, with an onset of 41: losses of 6.6 and 4.5 to 5.0 after 2.5, a gradient norm of 10 (healthy 0.6), and a
    loss of 3.0 six steps after the last bad one.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace all tokens."""
        import torch

        from ckaudit.lab.chance import swapped

        if not self.onset <= training.step < self.onset + self.strength:
            return batch
        stream = swapped(torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1), training, share=1.0)  # (B, T + 1)
        return replace(batch, inputs=stream[:, :-1].contiguous(), targets=stream[:, 1:].contiguous())
