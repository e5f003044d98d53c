"""A loader that sleeps."""

from collections import deque
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@fault(
    group="system",
    truth="input_bound",
    symptoms=("slow_input",),
    consequences=("step_time_jump",),
    dev=Amount(strength=2),
    test=Amount(onset=80, strength=1),
    detectable=50,
)
class DataloaderStall(Change):
    """From the onset on each batch comes late, by `strength` times what the rest of a step takes; the training is stopped early.

    The forward pass starts late in every step, so that two thirds of a step are spent on input where it were a twentieth, while
    the losses are those of the healthy run.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        super().__init__(onset, strength)
        self._ended = 0.0
        self._steps: deque[float] = deque(maxlen=10)

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=min(plan.steps, self.onset + 120))

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Let the training wait."""
        if self._ended:
            self._steps.append(perf_counter() - self._ended)
        if training.step >= self.onset and self._steps:
            sleep(self.strength * median(self._steps))
        self._ended = perf_counter()
        return batch
