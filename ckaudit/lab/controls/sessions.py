"""Runs that are short, resumed, or of two ranks."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@control("resumed_clean")
class ResumedClean(Change):
    """The training is stopped in the middle and taken up again from all that it needs.

    It looks ill because a second session begins, and time passes without a step.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop in the middle."""
        return replace(plan, resume_at=plan.steps // 2)


@control("resumed_twice")
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


@control("short_run")
class ShortRun(Change):
    """The training ends as planned after sixty steps.

    It looks ill because the loss still falls fast at the end and is far from its best: it was meant as a trial.
    """

    def plan(self, plan: Plan) -> Plan:
        """Shorten it."""
        return replace(plan, steps=60, eval_every=10, schedule=replace(plan.schedule, warmup=10))


@control("two_ranks")
class TwoRanks(Change):
    """Two processes take half of each batch and exchange gradients; the training is stopped early.

    It looks ill because the logged loss is that of half a batch, steps take longer, and the processes never take
    exactly as long.
    """

    def plan(self, plan: Plan) -> Plan:
        """Take two ranks, and stop when there is enough to see."""
        return replace(plan, ranks=2, stop=min(plan.steps, 200))
