"""Rows that become longer."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control()
class CurriculumLength(Change):
    """Rows have a quarter of their length at first, half of it after an eighth of the steps, all of it after a quarter.

    It looks ill because the held-out loss, on whole rows, is bad until late positions are trained, because the tokens of a
    step double twice, and because the first loss at a new length is higher than the last at the old one. The configuration
    lists the stages.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make the stages."""
        eighth, length = plan.steps // 8, plan.data.length
        self._stages = {1: length // 4, eighth + 1: length // 2, 2 * eighth + 1: length}
        return plan

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Keep the beginning of each row."""
        length = self._stages[max(first for first in self._stages if first <= training.step)]
        inputs, targets = batch.inputs[:, :length], batch.targets[:, :length]
        return replace(batch, inputs=inputs.contiguous(), targets=targets.contiguous())

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say which stages there are."""
        stages = [{"first_step": first, "row_length": length} for first, length in self._stages.items()]
        return facts | {"config": {"stages": stages}}
