"""An optimizer made before the model was rebuilt."""

from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(
    group="code",
    truth="not_in_optimizer",
    acceptable=("updates_not_applied",),
    symptoms=("missing_in_optimizer", "barely_moving", "loss_not_falling"),
    consequences=("gradients_carried_over", "exploding_gradient", "frequent_clipping", "skipped_updates", "uniform_heads"),
)
class StaleParameters(Change):
    """The optimizer holds copies of the parameters, as when it is made before the model is wrapped or moved.

    It clears and updates the copies: the model's gradients add up and nothing moves.

    Seen under seed 0: a loss of 4.56 throughout, relative updates of 0 while the count of updates rises, and a gradient norm
    that goes from 1.25 to a constant 2.2, for what was clipped to 1 stays in.
    """

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Give the optimizer copies."""
        from torch.nn import Parameter

        return [Parameter(parameter.detach().clone()) for parameter in model.parameters()]
