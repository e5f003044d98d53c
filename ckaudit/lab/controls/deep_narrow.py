"""Twelve narrow blocks."""

from typing import cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import control


@control()
class DeepNarrow(Change):
    """The model has twelve blocks of half the usual width, with larger initial weights as it is narrow.

    It looks ill because gradients differ more between blocks and each block moves little: that is depth, not illness.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make it deep and narrow."""
        model = cast("Gpt", plan.model)
        return replace(
            plan, model=replace(model, depth=12, width=model.width // 2, hidden=model.hidden // 2, init_std=3 * model.init_std)
        )
