"""A peak that the hardware exceeds."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from torch import nn

CORE_PEAK = 1e11  # FLOP/s of one core with 32 single precision operations a cycle


@fault(
    group="records",
    truth="peak_flops_wrong",
    symptoms=("impossible_value",),
    consequences=("contradicted_claim",),
    dev=Amount(strength=200),
    test=Amount(strength=100),
    detectable=10,
)
class MfuWrongPeak(Change):
    """The peak of the hardware is given `strength` times too low; the training is stopped early.

    The utilisation that follows from throughput, work of a token and peak is 2 to 10 throughout.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=100)

    def model(self, model: "nn.Module") -> None:
        """Count the work of a token: six operations a weight."""
        self._work = 6 * sum(weight.numel() for weight in model.parameters())

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Tell work and peak."""
        return facts | {"flops_per_token": self._work, "peak_flops": CORE_PEAK / self.strength}
