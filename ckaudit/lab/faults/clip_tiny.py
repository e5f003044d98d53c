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

    Seen under seed 0: the gradient norm is 0.6 to 1.7, the clipping coefficient 6e-5 to 2e-4 at every step; Adam hides most
    of it: attention learns later (logits of 1 at step 100, healthy: 4) and the loss is 1.90 at step 150 (1.85).
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the limit."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=self.strength))
