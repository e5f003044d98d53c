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
    """SGD with momentum in place of AdamW, with the rate that AdamW would have and no weight decay.

    Seen under seed 0: at step 50 updates of attention's queries are 1e-6 to 4e-6 of the weights and those of the MLPs 4e-4
    (healthy: 3e-2 and 2e-2), only the head moves as it should; the loss is 3.48 (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take SGD."""
        return replace(plan, optimizer=replace(plan.optimizer, kind="sgd", weight_decay=0.0))
