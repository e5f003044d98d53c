"""A learning rate that ends at zero."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class LrLinearToZero(Change):
    """The learning rate falls on a line and is zero at the last step.

    It looks ill because the last updates move nothing, and the very last is no update at all: so it is planned.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="linear", final=0.0))
