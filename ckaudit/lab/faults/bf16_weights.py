"""Weights kept in half precision."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="numerics",
    truth="updates_lost_to_rounding",
    acceptable=("learning_rate_too_low",),
    symptoms=("barely_moving", "update_out_of_band", "loss_not_falling"),
    consequences=("uniform_heads",),
    dev=Amount(strength=0.03),
    test=Amount(strength=0.06),
)
class Bf16Weights(Change):
    """Weights and optimizer are in bfloat16, and the peak learning rate is `strength` times the healthy one, as in a finetuning.

    An update below 1/256 of a weight is rounded away: norms and large weights never move, though every tensor has its gradient.

    Seen under seed 0: norms that have not moved in 60 steps, relative updates below 1e-3, a loss of 4.1 at step 60.
    """

    def plan(self, plan: Plan) -> Plan:
        """Lower the peak."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak * self.strength))

    def model(self, model: "nn.Module") -> None:
        """Keep the weights in bfloat16."""
        model.bfloat16()
