"""Queries that share keys, and are normed."""

from typing import cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import control


@control()
class GqaQkNorm(Change):
    """Two query heads share each key head, and queries and keys are normed per head.

    It looks ill because key and value matrices are half as large as their neighbours and have smaller gradients, and because
    attention logits cannot grow.
    """

    def plan(self, plan: Plan) -> Plan:
        """Share keys and norm."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, kv_heads=model.heads // 2, qk_norm=True))
