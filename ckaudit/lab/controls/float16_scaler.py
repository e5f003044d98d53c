"""A loss scale that has to settle."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@control()
class Float16Scaler(Change):
    """Forward and backward passes run in float16 with a loss scale that starts high.

    It looks ill because the first two or three updates overflow and are skipped while the scale comes down: none is later.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the precision, and stop early, as processors are slow at it."""
        return replace(plan, precision="float16", stop=min(plan.steps, 120))

    def zero(self, training: "Training") -> None:
        """Start high."""
        if training.step == 1 and training.scaler is not None:
            training.scaler.load_state_dict(training.scaler.state_dict() | {"scale": 2.0**22})
        training.optimizer.zero_grad()
