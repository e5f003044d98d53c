"""Two learning rates."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@control()
class LayerwiseLr(Change):
    """The first block and the embeddings learn half as fast as the rest, which learns faster than usual.

    It looks ill because there are two learning rates, and a block and the embeddings move less than their neighbours.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the learning rate of the rest."""
        return replace(plan, optimizer=replace(plan.optimizer, peak=1.5 * plan.optimizer.peak))

    def trained(self, model: "nn.Module") -> list[Any]:
        """Make two groups."""
        slow = [weight for name, weight in model.named_parameters() if self._is_slow(name)]
        fast = [weight for name, weight in model.named_parameters() if not self._is_slow(name)]
        return [{"params": fast}, {"params": slow}]

    def update(self, training: "Training") -> None:
        """Slow one of them down."""
        training.optimizer.param_groups[1]["lr"] /= 2
        training.update()

    @staticmethod
    def _is_slow(name: str) -> bool:
        return name.startswith(("tokens.", "positions.", "blocks.0."))
