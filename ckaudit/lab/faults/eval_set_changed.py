"""A held-out set that is another one in later evaluations."""

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ckaudit.lab.backwards import backwards
from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="records",
    truth="evaluation_changed",
    symptoms=("evaluation_artifact_changed",),
    consequences=("overfitting",),
    dev=Amount(onset=250, strength=0.25),
    test=Amount(onset=350, strength=0.1),
    detectable=25,
)
class EvalSetChanged(Change):
    """From the onset on the share `strength` of the held-out rows is replaced by ones of a kind that training never sees.

    The logged hash of the held-out set changes, and the held-out loss goes up by half a nat while the training loss falls on.
    """

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate on the rows of the step."""
        from ckaudit.lab.task import Evaluation

        training.evaluation = Evaluation(training.task, self._held_out(training))
        return training.evaluate()

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Add the hash of the set to every evaluation."""
        if "val_loss" not in values:
            return values
        data = self._held_out(training).inputs.numpy().tobytes()
        return values | {"eval_artifact_hash/held_out": f"sha256:{sha256(data).hexdigest()}"}

    def _held_out(self, training: "Training") -> "Batch":
        held = training.corpus.held_out()
        share = self.strength if training.step >= self.onset else 0
        return backwards(held, round(share * len(held.inputs)))
