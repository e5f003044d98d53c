"""Metrics that are computed or written wrongly, and evaluations that change."""

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.altered_batches import backwards
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "ema_wrong",
    group="records",
    truth="metric_computed_wrongly",
    symptoms=("contradicted_claim",),
    dev=FaultStrength(strength=0.999),
    test=FaultStrength(strength=0.995),
    detectable=50,
)
class EmaWrong(Change):
    """run.json says that the loss is averaged with a factor of 0.98, but the logged average uses `strength`.

    After 400 steps it is still at 3.6 nats, where no loss of the last 300 was above 2.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        super().__init__(onset, strength)
        self._average: float | None = None

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State the intended factor."""
        return facts | {"loss_ema_beta": 0.98}

    def loss(self, training: "Training", logits: "Tensor", batch: Any) -> "Tensor":
        """Update the average."""
        loss = training.task.loss(logits, batch)
        value = float(loss.detach())
        before = value if self._average is None else self._average
        self._average = self.strength * before + (1 - self.strength) * value
        return loss

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Log the average."""
        return values | {"train_loss_ema": self._average}


RARE = 0.02  # share of a text below which tokens may be permuted


@fault(
    "eval_hash_change",
    group="records",
    truth="evaluation_changed",
    symptoms=("evaluation_artifact_changed",),
    dev=FaultStrength(onset=200, strength=0.05),
    test=FaultStrength(onset=300, strength=0.03),
    detectable=25,
)
class EvalHashChange(Change):
    """From the onset on evaluations use another tokenizer: tokens that make up the share `strength` of a text are permuted.

    The logged hash of the tokenizer changes, and the held-out loss goes up by half a nat while the training loss falls on.
    """

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate with the tokenizer of the step."""
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
        """Return the id of each token, shape (V,)."""
        import torch

        table = torch.arange(training.corpus.vocabulary)
        if training.step >= self.onset:
            shares = inputs.flatten().bincount(minlength=len(table)) / inputs.numel()
            rare = [int(token) for token in shares.argsort(descending=True, stable=True) if shares[token] < RARE]
            while len(rare) > 1 and float(shares[table != torch.arange(len(table))].sum()) < self.strength:
                left, right = rare.pop(0), rare.pop(0)
                table[left], table[right] = right, left
        return table


@fault(
    "eval_set_changed",
    group="records",
    truth="evaluation_changed",
    symptoms=("evaluation_artifact_changed",),
    consequences=("overfitting",),
    dev=FaultStrength(onset=250, strength=0.25),
    test=FaultStrength(onset=350, strength=0.1),
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


CORE_PEAK = 1e11  # FLOP/s of one core with 32 single-precision operations per cycle


@fault(
    "mfu_wrong_peak",
    group="records",
    truth="peak_flops_wrong",
    symptoms=("impossible_value",),
    consequences=("contradicted_claim",),
    dev=FaultStrength(strength=200),
    test=FaultStrength(strength=100),
    detectable=10,
)
class MfuWrongPeak(Change):
    """The peak of the hardware is given `strength` times too low; the training is stopped early.

    The utilisation from throughput, work per token and peak is 2 to 10 throughout.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=100)

    def model(self, model: "nn.Module") -> None:
        """Count the work per token: six operations per weight."""
        self._work = 6 * sum(weight.numel() for weight in model.parameters())

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State work and peak."""
        return facts | {"flops_per_token": self._work, "peak_flops": CORE_PEAK / self.strength}


@fault(
    "ppl_base_2",
    group="records",
    truth="metric_computed_wrongly",
    symptoms=("contradicted_claim",),
    consequences=("contract_violation", "impossible_value"),
    dev=FaultStrength(strength=2.0),
    test=FaultStrength(onset=250, strength=2.0),
    detectable=25,
)
class PplBase2(Change):
    """From the onset on the logged perplexity is `strength` to the power of a loss in nats; before that it is right.

    At a held-out loss of 1.5 nats it is 2.8 where it should be 4.5.
    """

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Log a perplexity beside every held-out loss."""
        from math import e

        if "val_loss" not in values:
            return values
        base = self.strength if training.step >= self.onset else e
        return values | {"val_ppl": base ** values["val_loss"]}


@fault(
    "nan_hidden",
    group="records",
    truth="nan_hidden_by_logger",
    acceptable=("nonfinite_operation",),
    symptoms=("hidden_nonfinite", "nonfinite_values"),
    consequences=("impossible_value", "skipped_updates", "loss_below_floor", "barely_moving", "update_out_of_band"),
    dev=FaultStrength(onset=150, strength=20),
    test=FaultStrength(onset=310, strength=3),
    detectable=2,
)
class NanHidden(Change):
    """For `strength` steps from the onset on the loss is NaN; the trainer skips these updates, and logs a loss of 0.

    The logged loss is exactly zero where the gradient norm is NaN.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Make the loss NaN for a while."""
        loss = training.task.loss(logits, batch)
        return loss * float("nan") if 0 <= training.step - self.onset < self.strength else loss

    def update(self, training: "Training") -> None:
        """Skip updates from gradients that are not finite."""
        if all(weight.grad is None or bool(weight.grad.isfinite().all()) for weight in training.model.parameters()):
            training.update()

    def shown_loss(self, training: "Training", loss: "Tensor") -> "Tensor | float":
        """Log zero."""
        return loss if bool(loss.isfinite()) else 0.0
