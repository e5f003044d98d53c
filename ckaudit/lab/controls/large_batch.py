"""Batches four times as large."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class LargeBatch(Change):
    """A batch has four times the usual rows, for half of the steps at a learning rate higher by half.

    It looks ill because the loss falls in few, large moves and hardly has any noise.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make batches large and the learning rate with them."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * 1.5)
        data = replace(plan.data, batch_size=4 * plan.data.batch_size)
        return replace(plan, data=data, optimizer=optimizer, steps=plan.steps // 2)
