"""A training of sixty steps."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class ShortRun(Change):
    """The training ends as planned after sixty steps.

    It looks ill because the loss still falls fast at the end and is far from its best: it was meant as a trial.
    """

    def plan(self, plan: Plan) -> Plan:
        """Shorten it."""
        return replace(plan, steps=60, eval_every=10, schedule=replace(plan.schedule, warmup=10))
