"""Updates of four batches."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class Accumulation(Change):
    """Four small batches make one update.

    It looks ill because a step has four forward passes, and the recorded batch is a quarter of what the update saw.
    """

    def plan(self, plan: Plan) -> Plan:
        """Accumulate."""
        return replace(plan, accumulate=4)
