"""Initial matrices a hundred times too large."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="initialization",
    truth="init_too_large",
    symptoms=("initial_loss_off", "weight_scale_off", "logit_growth", "entropy_collapse"),
    consequences=(
        "loss_not_falling",
        "exploding_gradient",
        "update_out_of_band",
        "activation_drift",
        "loss_spike",
        "saturated_units",
    ),
    dev=Amount(strength=100),
    test=Amount(strength=60),
)
class InitX100(Change):
    """All matrices are drawn `strength` times too large, and gradients are not clipped.

    Seen under seed 0: the first loss is 37 (log of the vocabulary: 4.6), at step 10 logits reach 1,400 and the sharpest
    head's entropy is 0.004 of its maximum; at step 50 the loss is still 9.5 (healthy: 2.3).
    """

    def plan(self, plan: Plan) -> Plan:
        """Take the limit away."""
        return replace(plan, optimizer=replace(plan.optimizer, clip=None))

    def model(self, model: "nn.Module") -> None:
        """Enlarge the matrices."""
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.data.mul_(self.strength)
