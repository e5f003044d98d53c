"""A learning rate a few times too high."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="learning_rate_too_high",
    acceptable=("missing_warmup",),
    symptoms=("update_out_of_band", "entropy_collapse", "logit_growth", "loss_spike", "loss_not_falling"),
    consequences=("activation_drift", "exploding_gradient", "frequent_clipping", "weights_grow", "vanishing_gradient"),
    dev=Amount(strength=6),
    test=Amount(strength=5),
    harmless=True,
)
class LrMildlyHigh(Change):
    """The peak learning rate is `strength` times the healthy one.

    Seen under seed 0: at step 100 logits reach 30 (healthy: 3), the sharpest head's entropy is 0.37 of its maximum (0.91)
    and the stream is 17 times as large; yet the loss ends at 0.69 (1.24), so in so short a run the rate helps.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))
