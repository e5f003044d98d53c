"""Two processes that train one model."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class TwoRanks(Change):
    """Two processes take half of each batch and exchange gradients; the training is stopped early.

    It looks ill because the logged loss is that of half a batch, steps take longer, and the processes never take
    exactly as long.
    """

    def plan(self, plan: Plan) -> Plan:
        """Take two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, 200))
