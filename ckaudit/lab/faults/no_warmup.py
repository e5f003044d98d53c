"""A hot learning rate without warm-up."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="missing_warmup",
    acceptable=("learning_rate_too_high",),
    symptoms=(
        "initialization_lost",
        "update_out_of_band",
        "loss_spike",
        "entropy_collapse",
        "logit_growth",
        "exploding_gradient",
        "loss_not_falling",
    ),
    consequences=("activation_drift", "frequent_clipping", "weights_grow", "vanishing_gradient", "dead_parameter", "dead_units"),
    dev=Amount(strength=10),
    test=Amount(strength=8),
)
class NoWarmup(Change):
    """The first step is taken at the peak learning rate, which is `strength` times the healthy one.

    Seen under seed 0: at step 20 the sharpest head's entropy is 0.04 of its maximum (healthy: 1.0), logits reach 123 (0.3)
    and the stream is 400 times as large; the loss ends at 1.81 (1.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take the warm-up away and raise the peak."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, warmup=0))
