"""A loss scale that overflows again and again."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="loss_scale_too_high",
    symptoms=("overflow", "skipped_updates"),
    consequences=("nonfinite_values", "barely_moving"),
    dev=Amount(strength=4),
    test=Amount(strength=8),
    detectable=60,
)
class LossScaleStorm(Change):
    """The loss scaler doubles its scale after every `strength` good steps; gradients pass through half precision.

    They overflow as often and the update of that step is skipped; the loss hardly shows it.

    Seen under seed 0: 5 of 40 updates skipped, with an infinite gradient norm each; the loss as in the healthy run.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train with a loss scaler."""
        return replace(plan, precision="float16")

    def begin(self, training: "Training") -> None:
        """Let the scale grow fast; the forward pass in half precision would take ten times as long on a CPU."""
        training.precision = "float32"
        if training.scaler is not None:
            training.scaler.set_growth_interval(int(self.strength))

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Round the scaled gradients to half precision, where large ones are infinite."""
        super().backward(training, loss)
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_(parameter.grad.half())
