"""A tokenizer that is another one in later evaluations."""

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training

RARE = 0.02  # share of a text below which a token may change its place


@fault(
    group="records",
    truth="evaluation_changed",
    symptoms=("evaluation_artifact_changed",),
    dev=Amount(onset=200, strength=0.05),
    test=Amount(onset=300, strength=0.03),
    detectable=25,
)
class EvalHashChange(Change):
    """From the onset on evaluations use another tokenizer: tokens that make up the share `strength` of a text changed places.

    The logged hash of the tokenizer changes, and the held-out loss goes up by half a nat while the training loss falls on.
    """

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate with the tokenizer of the step."""
        from msgspec.structs import replace

        from ckaudit.lab.task import Evaluation

        held = training.corpus.held_out()
        table = self._table(training, held.inputs)
        held = replace(held, inputs=table[held.inputs], targets=table[held.targets])
        training.evaluation = Evaluation(training.task, held)
        return training.evaluate()

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Add the hash of the tokenizer to every evaluation."""
        if "val_loss" not in values:
            return values
        table = self._table(training, training.corpus.held_out().inputs)
        return values | {"eval_artifact_hash/tokenizer": f"sha256:{sha256(table.numpy().tobytes()).hexdigest()}"}

    def _table(self, training: "Training", inputs: "Tensor") -> "Tensor":
        """Return the number of each token, shape (V,)."""
        import torch

        table = torch.arange(training.corpus.vocabulary)
        if training.step >= self.onset:
            shares = inputs.flatten().bincount(minlength=len(table)) / inputs.numel()
            rare = [int(token) for token in shares.argsort(descending=True, stable=True) if shares[token] < RARE]
            while len(rare) > 1 and float(shares[table != torch.arange(len(table))].sum()) < self.strength:
                left, right = rare.pop(0), rare.pop(0)
                table[left], table[right] = right, left
        return table
