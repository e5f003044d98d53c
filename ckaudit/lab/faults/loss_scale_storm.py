"""A loss scale that overflows again and again."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
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
    """The loss scaler of a training in float16 doubles its scale after every `strength` good steps.

    It overflows as often and the update of that step is skipped; the loss hardly shows it.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train in float16."""
        return replace(plan, precision="float16")

    def begin(self, training: "Training") -> None:
        """Let the scale grow fast."""
        if training.scaler is not None:
            training.scaler.set_growth_interval(int(self.strength))
