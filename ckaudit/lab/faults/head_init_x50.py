"""A head that is sure of itself before it has learnt anything."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="initialization",
    truth="init_too_large",
    symptoms=("initial_loss_off", "weight_scale_off"),
    consequences=("exploding_gradient", "frequent_clipping", "loss_not_falling", "update_out_of_band", "layer_not_contributing"),
    place=("head.weight",),
    dev=Amount(strength=50),
    test=Amount(strength=30),
    harmless=True,
)
class HeadInitX50(Change):
    """The head, a matrix of its own, is drawn `strength` times too large; all other weights are as ever.

    Seen under seed 0: the first loss is 17 (log of the vocabulary: 4.6) and the gradient norm 73 (healthy: 1.25); from step
    10 on the loss is no worse than the healthy one, so nothing is lost.
    """

    def plan(self, plan: Plan) -> Plan:
        """Give the head a matrix of its own."""
        return replace(plan, model=replace(plan.model, tied=False)) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Enlarge the head."""
        head: Any = model.get_submodule("head")
        head.weight.data.mul_(self.strength)
