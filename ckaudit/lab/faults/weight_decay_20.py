"""Weight decay that outweighs learning."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="weight_decay_too_high",
    symptoms=("weights_shrink", "loss_not_falling"),
    consequences=(
        "loss_rises",
        "uniform_heads",
        "starved_branch",
        "barely_moving",
        "vanishing_gradient",
        "activation_drift",
        "dead_parameter",
        "dead_units",
        "update_out_of_band",
    ),
    dev=Amount(strength=20),
    test=Amount(strength=15),
    detectable=40,
)
class WeightDecay20(Change):
    """AdamW's weight decay is `strength`.

    Seen under seed 0: from step 10 on the spread of weights shrinks, from 0.008 to 0.0003 at step 100 in the smallest, and
    the stream with it; updates are 4 to 6 % of the weights (healthy: 1 %); after a first fall to 3.8 the loss climbs back
    to 4.4 (1.9).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the decay."""
        return replace(plan, optimizer=replace(plan.optimizer, weight_decay=self.strength))
