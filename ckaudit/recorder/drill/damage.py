"""Damage to a running model through its parameters and modules only; the lab and the recorder's drills share it."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn


class DrillStrength(Struct, frozen=True):
    """When and how strongly a fault acts.

    Attributes:
        onset: First step at which it acts, if it starts in the middle of a training.
        strength: How strong it is, from 0 (the weakest) to 1.
    """

    onset: int
    strength: float

    def between(self, low: float, high: float) -> float:
        """Return a factor between two bounds, interpolated in the logarithm by `strength`.

        >>> round(DrillStrength(1, 0.5).between(10, 1000))
        100
        """
        return float(low * (high / low) ** self.strength)


def matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that are matrices or filters."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.dim() >= 2]


def middle_matrix(model: nn.Module) -> tuple[str, nn.Parameter]:
    """Return the middle matrix of the model's trained ones; embeddings are left out if there are others."""
    trained = [(name, weight) for name, weight in matrices(model) if weight.requires_grad]
    inner = [(name, weight) for name, weight in trained if "emb" not in name] or trained
    return inner[len(inner) // 2]


def middle_part(model: nn.Module) -> str:
    """Return the name of the module around the middle matrix: an attention, an MLP, or the matrix's own layer.

    The layer is returned if the module around it holds half or more of the trained parameters.
    """
    name = middle_matrix(model)[0]
    module = name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    around = module.rpartition(".")[0]
    whole, size = (
        sum(weight.numel() for weight in of.parameters() if weight.requires_grad) for of in (model, model.get_submodule(around))
    )
    return around if size < whole / 2 else module


def part_of(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of the middle module."""
    prefix = middle_part(model)
    return [(name, weight) for name, weight in model.named_parameters() if name.startswith(prefix + ".")]


# Weights and gradients: each function acts on the current model, after a backward pass.
Act = Callable[[nn.Module], object]


def draw_part_anew(model: nn.Module, source: torch.Generator | None = None) -> None:
    """Initialise the matrices of the middle module again at their current scale, from a given generator or PyTorch's own."""
    for _, weight in part_of(model):
        if weight.dim() >= 2:
            drawn = torch.randn_like(weight) if source is None else torch.randn(weight.shape, generator=source)
            weight.copy_(drawn.to(weight) * weight.std())


def zero_matrix(model: nn.Module) -> None:
    """Set the middle matrix to zero."""
    middle_matrix(model)[1].zero_()


def zero_half_of_matrix(model: nn.Module) -> None:
    """Set half of the rows of the middle matrix to zero."""
    weight = middle_matrix(model)[1]
    weight[: len(weight) // 2].zero_()


def multiply_weights(model: nn.Module) -> None:
    """Multiply all matrices by five."""
    for _, weight in matrices(model):
        weight.mul_(5.0)


def spoil_gradient(model: nn.Module) -> bool:
    """Write NaN into a row of the middle matrix's gradient, and tell whether it has a gradient."""
    gradient = middle_matrix(model)[1].grad
    if gradient is not None:
        gradient[0] = torch.nan
    return gradient is not None


def lose_gradients(model: nn.Module) -> None:
    """Discard the gradients of the middle module."""
    for _, weight in part_of(model):
        weight.grad = None


def flip_gradients(model: nn.Module) -> None:
    """Flip the sign of all gradients."""
    for weight in model.parameters():
        if weight.grad is not None:
            weight.grad.neg_()


# Models: each function acts on a model that has not been trained yet.
def scale_matrices(model: nn.Module, scale: float) -> None:
    """Multiply the trained matrices by a scale."""
    for _, weight in matrices(model):
        if weight.requires_grad:
            weight.mul_(scale)


def freeze_part(model: nn.Module) -> None:
    """Freeze the parameters of the middle module."""
    for _, weight in part_of(model):
        weight.requires_grad = False


def detached(output: Any) -> Any:
    """Return a module's output detached from its graph; of several outputs the first."""
    return output.detach() if isinstance(output, Tensor) else (output[0].detach(), *output[1:])


def replace_modules(model: nn.Module, is_wanted: Callable[[nn.Module], bool], make: Callable[[], nn.Module]) -> int:
    """Replace each module that is wanted by a new one, and return how many there were."""
    count = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if is_wanted(child):
                setattr(module, name, make())
                count += 1
    return count


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is a normalisation with a scale."""
    return "norm" in type(module).__name__.lower() and sum(weight.dim() == 1 for weight in module.parameters()) > 0


def is_activation(module: nn.Module) -> bool:
    """Tell whether a module is an unbounded activation function."""
    kind = type(module).__name__.lower()
    return not list(module.children()) and any(word in kind for word in ("relu", "gelu", "silu", "activation"))


def is_dropout(module: nn.Module) -> bool:
    """Tell whether a module is a dropout."""
    return isinstance(module, nn.Dropout)


class SteepSigmoid(nn.Module):
    """A sigmoid that saturates for nearly all inputs."""

    def forward(self, x: Tensor) -> Tensor:
        """Map any tensor to one of its shape."""
        return torch.sigmoid(20 * x)


class NoNorm(nn.Identity):
    """Identity that replaces a normalisation.

    PyTorch's encoder layer uses a fused kernel in evaluation mode, which reads the weights of its norms, if both epsilons are
    equal.
    """

    eps = math.nan


def leave_norms_out(model: nn.Module) -> int:
    """Replace every normalisation by the identity, and return how many there were."""
    return replace_modules(model, is_norm, NoNorm)


def saturate_activations(model: nn.Module) -> int:
    """Replace every activation function by a saturating sigmoid, and return how many there were."""
    return replace_modules(model, is_activation, SteepSigmoid)


def raise_dropout(model: nn.Module, share: float) -> int:
    """Set the rate of every dropout, and return how many there are."""
    return replace_modules(model, is_dropout, lambda: nn.Dropout(share))


def kill_units(model: nn.Module) -> int:
    """Shift nine in ten units before each ReLU below zero, and return how many ReLUs there are."""
    count = 0
    for layer, after in pairwise(list(model.modules())):
        if not isinstance(layer, nn.Linear | nn.Conv2d | nn.BatchNorm2d | nn.BatchNorm1d) or layer.bias is None:
            continue
        if isinstance(after, nn.ReLU):
            layer.bias[: len(layer.bias) * 9 // 10].fill_(-20.0)
            count += 1
    return count


def is_batch_norm(module: nn.Module) -> bool:
    """Tell whether a module is a batch normalization, whose function depends on the mode."""
    return isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)


def stay_in_evaluation_mode(model: nn.Module) -> int:
    """Keep the model in evaluation mode from now on, as after a validation, and return how many batch normalizations it has."""
    set_mode = model.train
    model.train = lambda mode=True: set_mode(False)  # type: ignore[method-assign]  # noqa: ARG005  the signature of torch
    model.eval()
    return sum(map(is_batch_norm, model.modules()))


def is_masked(module: nn.Module) -> bool:
    """Tell whether a module is attention that takes a causal mask: PyTorch's own, or one of transformers."""
    return isinstance(module, nn.MultiheadAttention) or getattr(module, "is_causal", False) is True


def drop_causal_masks(model: nn.Module) -> int:
    """Let attention attend to all tokens, whatever mask it gets, and return how many modules take a causal mask."""

    def unmasked(module: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(module, nn.MultiheadAttention):
            return inputs, given | {"attn_mask": None, "is_causal": False}
        name = "mask" if "mask" in given else "attention_mask"
        # Without any mask, the kernel would be called with `is_causal`.
        return inputs, given | {name: torch.zeros(1, 1, 1, 1, device=next(module.parameters()).device)}

    masked = [module for module in model.modules() if is_masked(module)]
    for module in masked:
        module.register_forward_pre_hook(unmasked, with_kwargs=True)
    return len(masked)
