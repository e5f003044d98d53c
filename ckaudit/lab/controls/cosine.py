"""A learning rate that falls to a hundredth."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class Cosine(Change):
    """The learning rate follows a cosine down to a hundredth of its peak.

    It looks ill because updates shrink all the time and the loss flattens out at the end: that is the plan.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="cosine", warmup=plan.steps // 10, final=0.01))
