"""A rank that is slower than the other."""

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
    truth="straggler",
    symptoms=("straggler",),
    consequences=("step_time_jump",),
    dev=Amount(strength=4),
    test=Amount(onset=60, strength=3),
    detectable=50,
)
class StragglerRank(Change):
    """Of two ranks, the second makes each backward pass `strength` times more from the onset on; the training is stopped early.

    The files of the ranks say that the second takes longer by itself, and the first waits for gradients.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train on two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, self.onset + 120))

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Work more on one rank."""
        if training.rank and training.step >= self.onset:
            repeat_backward(training, loss, int(self.strength))
        loss.backward()
