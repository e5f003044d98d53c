"""A learning rate that starts again from its peak."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class WarmRestarts(Change):
    """The learning rate falls on a cosine three times and restarts from its peak (Loshchilov & Hutter 2017).

    It looks ill because the loss rises after each restart: it is lower at the end of each cosine than at
    the end of the one before.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="restarts", periods=3, final=0.03))
