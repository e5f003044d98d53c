"""A learning rate that would be well after a warm-up, which is missing."""

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
    ),
    consequences=("activation_drift", "frequent_clipping", "weights_grow", "vanishing_gradient"),
    dev=Amount(strength=3),
    test=Amount(strength=4),
)
class NoWarmupMild(Change):
    """The first step is taken at the peak learning rate, `strength` times the healthy one.

    Seen under seed 0: at step 10 the stream is 50 times as large as in the healthy run, at step 50 the sharpest head's
    entropy is 0.18 of its maximum (healthy: 0.96); the loss ends at 1.45 (1.24).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take the warm-up away and raise the peak a little."""
        optimizer = replace(plan.optimizer, peak=plan.optimizer.peak * self.strength)
        return replace(plan, optimizer=optimizer, schedule=replace(plan.schedule, warmup=0))
