"""Initial weights five times as large, which helps."""

from typing import cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import control


@control()
class InitX5ThatHelps(Change):
    """All matrices start five times as large as GPT-2's.

    It looks ill because weights and outputs are far from the usual scale: at this width, where the usual scale is small, it
    trains faster than the usual one.
    """

    def plan(self, plan: Plan) -> Plan:
        """Widen the initial weights."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, init_std=5 * model.init_std))
