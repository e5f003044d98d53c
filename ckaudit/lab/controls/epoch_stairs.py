"""A training set that is gone through a few times."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class EpochStairs(Change):
    """The training set is small but sufficient, and is gone through about five times.

    It looks ill because batches hold rows that were there before and the training loss steps down where an epoch begins: the
    held-out loss falls on.
    """

    def plan(self, plan: Plan) -> Plan:
        """Keep a fifth of the rows that the training would see."""
        rows = plan.steps * plan.data.batch_size // 5
        return replace(plan, data=replace(plan.data, rows=rows))
