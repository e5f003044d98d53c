"""Three evaluations in all."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class RareEvaluations(Change):
    """The training is evaluated three times.

    It looks ill because the held-out loss is old at most steps and has too few points for any trend.
    """

    def plan(self, plan: Plan) -> Plan:
        """Evaluate rarely."""
        return replace(plan, eval_every=plan.steps // 3)
