"""An epsilon of Adam that outweighs the gradient's size."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="optimization",
    truth="adam_epsilon_too_large",
    acceptable=("learning_rate_too_low",),
    symptoms=("updates_held_back", "update_out_of_band", "barely_moving", "loss_not_falling"),
    consequences=("uniform_heads",),
    dev=Amount(strength=1),
    test=Amount(strength=0.3),
)
class AdamEps1(Change):
    """AdamW divides by the root of the second moment plus `strength`.

    Seen under seed 0: updates are 2e-4 of the weights at step 20 (healthy: 1e-2) though the gradient norm is as ever, and
    the loss is still 4.43 at step 50 (2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise epsilon."""
        return replace(plan, optimizer=replace(plan.optimizer, eps=self.strength))
