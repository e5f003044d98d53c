"""A learning rate far too high."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="learning_rate_too_high",
    acceptable=("missing_warmup",),
    symptoms=(
        "initialization_lost",
        "loss_spike",
        "exploding_gradient",
        "entropy_collapse",
        "update_out_of_band",
        "logit_growth",
        "loss_not_falling",
    ),
    consequences=(
        "activation_drift",
        "vanishing_gradient",
        "weights_grow",
        "dead_units",
        "dead_parameter",
        "nonfinite_values",
        "starved_branch",
        "zero_gradients",
    ),
    dev=Amount(strength=100),
    test=Amount(strength=60),
)
class LrTooHigh(Change):
    """The peak learning rate is `strength` times the healthy one, and gradients are not clipped.

    Seen under seed 0: attention saturates while the rate still warms up: at step 20 the sharpest head's entropy is 0.04 of
    its maximum (healthy: 1.0), at step 50 logits reach 5,000 (2); the loss does not explode but stops near 2.5 (1.6 at step
    200).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak and take the limit away."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength, clip=None)
        return replace(plan, optimizer=optimizer)
