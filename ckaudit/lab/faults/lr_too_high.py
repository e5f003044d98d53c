"""A learning rate far too high."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="learning_rate_too_high",
    acceptable=("missing_warmup",),
    symptoms=("loss_spike", "exploding_gradient", "entropy_collapse", "update_out_of_band", "logit_growth", "loss_not_falling"),
    consequences=("dead_parameter", "activation_drift", "nonfinite_values", "frequent_clipping", "dead_units", "overflow"),
    dev=Amount(strength=100),
    test=Amount(strength=60),
)
class LrTooHigh(Change):
    """The peak learning rate is `strength` times the healthy one, and gradients are not clipped.

    Attention saturates while the rate still warms up, and the loss leaves for good.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak and take the limit away."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength, clip=None)
        return replace(plan, optimizer=optimizer)
