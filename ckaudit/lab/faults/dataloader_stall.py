"""A loader that sleeps."""

from time import sleep
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
    dev=Amount(strength=60),
    test=Amount(onset=80, strength=120),
    detectable=50,
)
class DataloaderStall(Change):
    """From the onset on each batch comes `strength` milliseconds late; the training is stopped early.

    The forward pass starts late in every step, so that a large share of a step is spent on input, while the losses are those of
    the healthy run.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=min(plan.steps, self.onset + 120))

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Let the training wait."""
        if training.step >= self.onset:
            sleep(self.strength / 1000)
        return batch
