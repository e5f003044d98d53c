"""Experts with room for half of the tokens."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="model",
    truth="expert_capacity_too_small",
    symptoms=("dropped_tokens",),
    consequences=("router_imbalance",),
    dev=Amount(strength=0.5),
    test=Amount(strength=0.6),
    family="moe",
)
class ExpertCapacity(Change):
    """An expert takes `strength` times its fair share of a sequence's tokens; a token that it has no room for skips the layer.

    Seen under seed 0: 50 to 60 % of the tokens are dropped throughout, though experts are wanted about equally (healthy
    from step 50 on: 2 to 10 %); the loss does not show it so early (2.27 at step 70).
    """

    def plan(self, plan: Plan) -> Plan:
        """Shrink the room."""
        return replace(plan, model=replace(plan.model, capacity=self.strength)) if isinstance(plan.model, Gpt) else plan
