"""Plain SGD at the learning rate of Adam."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import fault


@fault(
    group="optimization",
    truth="optimizer_unsuited",
    acceptable=("learning_rate_too_low",),
    symptoms=("update_out_of_band", "barely_moving", "loss_not_falling"),
    consequences=("uniform_heads",),
)
class SgdInstead(Change):
    """SGD with momentum in place of AdamW, with the rate that AdamW would have.

    Seen under seed 0: updates are 0.2 to 0.3 % of the weights (healthy: 1 %), far less in some, and the loss is 3.56 at
    step 50 (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take SGD."""
        return replace(plan, optimizer=replace(plan.optimizer, kind="sgd"))
