"""A clipping limit thousands of times below the gradient norm, under Adam."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="clip_limit_too_low",
    symptoms=("frequent_clipping",),
    consequences=("update_out_of_band", "loss_not_falling", "uniform_heads"),
    dev=Amount(strength=1e-4),
    test=Amount(strength=3e-4),
)
class ClipTiny(Change):
    """The global gradient norm is limited to `strength`.

    SEEN
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the limit."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=self.strength))
