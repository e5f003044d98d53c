"""A learning rate that goes down in stairs."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class LrStairs(Change):
    """The learning rate comes down in three stairs.

    It looks ill because the learning rate jumps twice, and the loss with it: the plan that the run was told says so.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="stairs", periods=3, final=0.1))
