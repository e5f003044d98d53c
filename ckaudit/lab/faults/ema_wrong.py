"""A moving average that remembers far longer than it says."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training


@fault(
    group="records",
    truth="metric_computed_wrongly",
    symptoms=("contradicted_claim",),
    dev=Amount(strength=0.999),
    test=Amount(strength=0.995),
    detectable=50,
)
class EmaWrong(Change):
    """run.json says that the loss is averaged with a factor of 0.98, but the logged average takes `strength`.

    After 400 steps it is still at 3.6 nats, where no loss of the last 300 was above 2.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        super().__init__(onset, strength)
        self._average: float | None = None

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say which factor is meant."""
        return facts | {"loss_ema_beta": 0.98}

    def loss(self, training: "Training", logits: "Tensor", batch: Any) -> "Tensor":
        """Average on."""
        loss = training.task.loss(logits, batch)
        value = float(loss.detach())
        before = value if self._average is None else self._average
        self._average = self.strength * before + (1 - self.strength) * value
        return loss

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Log the average."""
        return values | {"train_loss_ema": self._average}
