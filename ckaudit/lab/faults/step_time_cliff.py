"""Steps that take longer from some step on."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.more_work import repeat_backward
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training


@fault(
    group="system",
    truth="hardware_throttled",
    symptoms=("step_time_jump",),
    dev=Amount(onset=150, strength=4),
    test=Amount(onset=220, strength=2),
    detectable=50,
)
class StepTimeCliff(Change):
    """From the onset on each backward pass is made `strength` times more, for nothing; the training is stopped 100 steps later.

    Step time trebles from one step to the next and stays there, and throughput falls to a third, at the same losses.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=min(plan.steps, self.onset + 100))

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Work more."""
        if training.step >= self.onset:
            repeat_backward(training, loss, int(self.strength))
        loss.backward()
