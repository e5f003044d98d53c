"""Which modules of a torch model have their output looked at."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from ckaudit.recorder.arrays import local
from ckaudit.recorder.table import CONVOLUTION, kind_of

FUNCTIONS = ("relu", "gelu", "silu", "swish", "mish", "sigmoid", "tanh", "elu", "glu", "softplus", "activation")


def chosen_modules(model: nn.Module, patterns: Sequence[str] | None, without: Sequence[str] = ()) -> dict[str, nn.Module]:
    """Return the modules whose output is measured, by name.

    Args:
        model: The model.
        patterns: Glob patterns of module names; None chooses blocks, norms, embeddings, activation functions, convolutions
            and the linear layers outside attention and head.
        without: Glob patterns of names that are never chosen.
    """
    named = {name: module for name, module in model.named_modules() if name and not matches(name, without)}
    if patterns is not None:
        return {name: module for name, module in named.items() if matches(name, patterns)}
    return {name: module for name, module in named.items() if _is_of_interest(name, module)}


def is_function(module: nn.Module) -> bool:
    """Return whether a module without parameters is an activation function, by the name of its class."""
    name = type(module).__name__.lower()
    return any(word in name for word in FUNCTIONS) and not list(module.children()) and "softmax" not in name


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a module's name fits one of the glob patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_of_interest(name: str, module: nn.Module) -> bool:
    own = type(module).__name__.lower()
    is_block = name.rpartition(".")[2].isdecimal() and bool(list(module.children()))
    if is_block or is_function(module) or isinstance(module, (nn.Embedding, *CONVOLUTION)) or "norm" in own:
        return True
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or list(module.children()):
        return False
    return kind_of(f"{name}.weight", module, weight.shape) in ("mlp", "other")


def output_tensor(output: Any) -> Tensor | None:
    """Return the tensor that a module put out, the first of a tuple, or what this rank has of it; None where none is floating."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return local(output) if isinstance(output, Tensor) and output.is_floating_point() else None
