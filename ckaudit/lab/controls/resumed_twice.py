"""Stopped twice and taken up again."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@control()
class ResumedTwice(Change):
    """The training is stopped after a quarter and after three quarters of its steps, and goes on from all that it needs.

    It looks ill because there are three sessions, and time passes twice without a step.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop after a quarter."""
        return replace(plan, resume_at=plan.steps // 4)

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Go on, to the next stop."""
        training.restore(saved)
        training.plan = replace(training.plan, resume_at=training.plan.steps * 3 // 4)
