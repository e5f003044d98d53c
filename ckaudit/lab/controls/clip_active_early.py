"""Clipping that acts in the first steps only."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class ClipActiveEarly(Change):
    """The limit of the gradient norm is low enough to act at the start and hardly ever later.

    It looks ill because every one of the first updates is clipped: gradients are large while nothing is learnt yet.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the limit."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=2.5))
