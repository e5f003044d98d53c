"""Nearly a third of the elements dropped."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class HighDropout(Change):
    """Dropout removes three of ten elements behind attention and MLP.

    It looks ill because the training loss lies above the held-out loss throughout: evaluations run without dropout.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the dropout."""
        return replace(plan, model=replace(plan.model, dropout=0.3))
