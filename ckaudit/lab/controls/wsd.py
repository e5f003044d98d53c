"""A plateau with a steep end."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class Wsd(Change):
    """The learning rate stays at its peak and comes down to zero in the last tenth of the steps.

    It looks ill because the loss seems to have stopped falling and then drops as if the data had changed: it drops because the
    learning rate does.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the schedule."""
        return replace(plan, schedule=replace(plan.schedule, shape="plateau", tail=0.1, final=0.0))
