"""Batches of four rows."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class TinyBatch(Change):
    """A batch has four rows, for twice as many steps at half the learning rate.

    It looks ill because loss and gradients are noisy and clipping is common: the learning rate fits, and both losses fall.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make batches small and the learning rate with them."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak / 2)
        data = replace(plan.data, batch_size=4)
        return replace(plan, data=data, optimizer=optimizer, steps=2 * plan.steps, eval_every=2 * plan.eval_every)
