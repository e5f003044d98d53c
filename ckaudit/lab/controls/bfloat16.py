"""A forward pass in bfloat16."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control


@control()
class Bfloat16(Change):
    """Forward and backward passes run in bfloat16, the weights are kept in float32.

    It looks ill because losses and gradients have three digits only.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the precision."""
        return replace(plan, precision="bfloat16")
