"""A learning rate that never falls."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class ConstantLr(Change):
    """After its warm-up the learning rate stays where it is, at half of the usual peak.

    It looks ill because no schedule seems to act and the loss stays noisy: it is planned so, and the rate is not too high.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule and lower the peak."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak / 2)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, shape="constant"))
