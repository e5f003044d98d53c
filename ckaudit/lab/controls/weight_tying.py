"""One matrix for embedding and head."""

from typing import cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import control


@control()
class WeightTying(Change):
    """Embedding and head share one matrix, and initial weights are twice as large, as the head needs them.

    It looks ill because the head is no tensor of its own, and the embedding moves at every step, rare tokens too.
    """

    def plan(self, plan: Plan) -> Plan:
        """Tie them."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, tied=True, init_std=2 * model.init_std))
