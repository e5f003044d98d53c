"""One matrix for embedding and head."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class WeightTying(Change):
    """Embedding and head share one matrix.

    It looks ill because the head is no tensor of its own, and the embedding moves at every step, rare tokens too.
    """

    def plan(self, plan: Plan) -> Plan:
        """Tie them."""
        return replace(plan, model=replace(plan.model, tied=True))
