"""A learning rate at which weights stand nearly still."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="learning_rate_too_low",
    acceptable=("learning_rate_is_zero",),
    symptoms=("update_out_of_band", "barely_moving", "loss_not_falling"),
    consequences=("uniform_heads",),
    dev=Amount(strength=1e-4),
    test=Amount(strength=3e-4),
)
class LrTooLow(Change):
    """The peak learning rate is `strength` times the healthy one.

    Seen under seed 0: updates are 3e-6 of the weights at step 20 (healthy: 1e-2), the gradient norm is as ever, and the
    loss stays at 4.56.
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))
