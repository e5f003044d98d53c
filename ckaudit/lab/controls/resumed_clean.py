"""Stopped once and taken up again."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class ResumedClean(Change):
    """The training is stopped in the middle and taken up again from all that it needs.

    It looks ill because a second session begins, and time passes without a step.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop in the middle."""
        return replace(plan, resume_at=plan.steps // 2)
