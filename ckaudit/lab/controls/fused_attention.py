"""Attention whose probabilities are never there."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class FusedAttention(Change):
    """Attention is one fused operation.

    It looks ill because no module puts out probabilities: what is recorded of attention is computed again for
    some queries.
    """

    def plan(self, plan: Plan) -> Plan:
        """Fuse it."""
        return replace(plan, model=replace(plan.model, fused=True))
