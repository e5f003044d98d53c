"""Layer norm with bias, and a table of positions."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class LayerNormLearned(Change):
    """Norms are layer norms with gain and bias, and positions a learned table.

    It looks ill because biases start at exactly zero, so that their first updates are infinitely large beside them, and late
    positions get small gradients.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose norm and positions."""
        return replace(plan, model=replace(plan.model, norm="layer", positions="learned"))
