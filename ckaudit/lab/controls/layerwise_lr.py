"""Two learning rates."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


@control()
class LayerwiseLr(Change):
    """The first block and the embeddings learn with a third of the learning rate of the rest.

    It looks ill because there are two learning rates, and a block and the embeddings move less than their neighbours.
    """

    def trained(self, model: "nn.Module") -> list[Any]:
        """Make two groups."""
        slow = [weight for name, weight in model.named_parameters() if self._is_slow(name)]
        fast = [weight for name, weight in model.named_parameters() if not self._is_slow(name)]
        return [{"params": fast}, {"params": slow}]

    def update(self, training: "Training") -> None:
        """Slow one of them down."""
        training.optimizer.param_groups[1]["lr"] /= 3
        training.update()

    @staticmethod
    def _is_slow(name: str) -> bool:
        return name.startswith(("tokens.", "positions.", "blocks.0."))
