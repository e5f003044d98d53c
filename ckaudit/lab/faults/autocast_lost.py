"""Autocast that is lost on the way."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="numerics",
    truth="precision_changed",
    symptoms=("dtype_changed", "step_time_jump"),
    dev=Amount(onset=151),
    test=Amount(onset=290),
    detectable=50,
)
class AutocastLost(Change):
    """A training in bfloat16 computes in float32 from the onset on, as when the context is left out of one branch.

    Outputs of modules change their precision and steps their time; the loss shows nothing.

    Seen under seed 0, with an onset of 31: outputs of linear layers in bfloat16 before and in float32 after; nothing in the
    loss.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train in bfloat16."""
        return replace(plan, precision="bfloat16")

    def begin(self, training: "Training") -> None:
        """Compute in float32."""
        if training.step == self.onset:
            training.precision = "float32"
