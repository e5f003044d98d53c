"""A learning rate at which the model learns, but far too slowly for the length of the run."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="learning_rate_too_low",
    symptoms=("update_out_of_band", "loss_not_falling", "barely_moving"),
    consequences=("uniform_heads",),
    dev=Amount(strength=1 / 50),
    test=Amount(strength=1 / 30),
)
class LrLow(Change):
    """The peak learning rate is `strength` times the healthy one.

    Seen under seed 0: updates are 0.05 % of the weights at step 50 (healthy: 1 %), and the loss is 4.2 and falls slowly
    (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))
