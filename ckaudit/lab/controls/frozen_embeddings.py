"""Embeddings that are not to be trained."""

from typing import TYPE_CHECKING, Any

from ckaudit.lab.change import Change
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from torch import nn


@control()
class FrozenEmbeddings(Change):
    """Embeddings keep their random values; the configuration lists them as frozen, and the optimizer does not hold them.

    It looks ill because tensors never move and have no gradient: that is what the configuration says.
    """

    def model(self, model: "nn.Module") -> None:
        """Draw the embeddings with unit spread, as they will not grow, and freeze them."""
        from torch.nn import init

        for name, weight in model.named_parameters():
            if name in self._names(model):
                init.normal_(weight)
                weight.requires_grad_(False)
        self._frozen = self._names(model)

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave the frozen ones out."""
        return [weight for weight in model.parameters() if weight.requires_grad]

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say which tensors are frozen."""
        return facts | {"config": {"frozen": self._frozen}}

    @staticmethod
    def _names(model: "nn.Module") -> list[str]:
        from torch import nn

        return [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
