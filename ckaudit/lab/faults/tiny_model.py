"""A model too small for its data."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="model",
    truth="capacity_too_small",
    acceptable=("context_not_used",),
    symptoms=("loss_not_falling",),
    consequences=("uniform_heads", "update_out_of_band", "dead_units"),
    dev=Amount(strength=4),
    test=Amount(strength=6),
    detectable=150,
)
class TinyModel(Change):
    """The stream and the only MLP are `strength` wide, under one head.

    Seen under seed 0: the loss is 2.98 at step 150 (healthy: 1.85) and 2.66 at step 250 (1.55), on the training and the
    held-out rows alike; no tensor looks ill.
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the model."""
        if not isinstance(plan.model, Gpt):
            return plan
        width = int(self.strength)
        return replace(plan, model=replace(plan.model, width=width, hidden=width, depth=1, heads=1, kv_heads=None))
