"""A learning rate too high for attention, behind a clipping limit that hides it."""

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
        "update_out_of_band",
        "entropy_collapse",
        "logit_growth",
        "loss_spike",
        "loss_not_falling",
        "weights_grow",
    ),
    consequences=(
        "activation_drift",
        "exploding_gradient",
        "frequent_clipping",
        "vanishing_gradient",
        "dead_parameter",
        "dead_units",
        "zero_gradients",
    ),
    dev=Amount(strength=30),
    test=Amount(strength=20),
)
class LrHigh(Change):
    """The peak learning rate is `strength` times the healthy one; gradients are clipped as ever.

    Seen under seed 0: at step 20 updates are 9 % of the weights (healthy: 1 %), at step 50 the sharpest head's entropy is
    0.007 of its maximum (0.96) and logits reach 343 (2); the loss curve looks merely mediocre, 1.61 at the end (1.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))
