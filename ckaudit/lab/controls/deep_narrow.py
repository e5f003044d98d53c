"""Twelve narrow blocks."""

from typing import cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import control


@control()
class DeepNarrow(Change):
    """The model has twelve blocks of half the usual width, and learns twice as fast.

    It looks ill because gradients differ more between blocks and each block moves little: that is depth, not illness.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make it deep and narrow."""
        model = cast("Gpt", plan.model)
        optimizer = replace(plan.optimizer, peak=2 * plan.optimizer.peak)
        plan = replace(plan, optimizer=optimizer)
        return replace(plan, model=replace(model, depth=12, width=model.width // 2, hidden=model.hidden // 2))
