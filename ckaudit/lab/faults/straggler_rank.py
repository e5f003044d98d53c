"""A rank that is slower than the other."""

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="system",
    truth="straggler",
    symptoms=("straggler",),
    consequences=("step_time_jump",),
    dev=Amount(strength=3),
    test=Amount(onset=60, strength=2),
    detectable=50,
)
class StragglerRank(Change):
    """Of two ranks, the second makes each forward pass `strength` times more from the onset on; the training is stopped early.

    The files of the ranks say that the second takes three times as long by itself, and the first waits for gradients.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        super().__init__(onset, strength)
        self._times = 0

    def plan(self, plan: Plan) -> Plan:
        """Train on two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, self.onset + 120))

    def model(self, model: "nn.Module") -> None:
        """Let a copy work at the beginning of each forward pass."""
        self._copy = deepcopy(model)
        model.tokens.register_forward_pre_hook(self._work)  # type: ignore[union-attr]

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Work more on one rank."""
        self._times = int(self.strength) if training.rank and training.step >= self.onset else 0
        return batch

    def _work(self, _module: "nn.Module", inputs: Any) -> None:
        import torch

        with torch.no_grad():
            for _ in range(self._times):
                self._copy(*inputs)
