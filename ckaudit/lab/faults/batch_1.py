"""Batches of a row or two."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="batch_too_small",
    acceptable=("learning_rate_too_high",),
    symptoms=("gradient_noise_too_high", "loss_spike", "exploding_gradient"),
    consequences=(
        "frequent_clipping",
        "update_out_of_band",
        "loss_not_falling",
        "token_drift",
        "dominant_tensor",
        "entropy_collapse",
    ),
    dev=Amount(strength=1),
    test=Amount(strength=2),
    detectable=50,
)
class Batch1(Change):
    """The number of rows in a batch is `strength`.

    Seen under seed 0: the loss jumps by 0.15 from step to step (healthy: 0.05), and is 2.21 on held-out rows at step 200
    (1.69).
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the batch."""
        return replace(plan, data=replace(plan.data, batch_size=int(self.strength)))
