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
        "uniform_heads",
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

    SEEN
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the decay."""
        return replace(plan, optimizer=replace(plan.optimizer, weight_decay=self.strength))
