"""Work that takes time and changes nothing."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training


def repeat_backward(training: "Training", loss: "Tensor", times: int) -> None:
    """Compute the gradients of a loss and throw them away."""
    import torch

    weights = [weight for weight in training.model.parameters() if weight.requires_grad]
    for _ in range(times):
        torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
