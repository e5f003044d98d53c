"""Activations: which modules are looked at, and the statistics of what they put out."""

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from msgspec import UNSET
from torch import Tensor, nn

from ckaudit.contract.behaviour import ActivationStats
from ckaudit.recorder.table import CONVOLUTION, kind_of
from ckaudit.recorder.tensors import dtype_name, flat, histogram, moments, quantiles, sample, shortest

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
    """Return the tensor that a module put out, the first of a tuple; None where there is no floating one."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) and output.is_floating_point() else None


def activation_stats(
    output: Tensor, *, count_dead: bool = False, dead_below: float = 1e-3, outlier: float = 6.0
) -> ActivationStats:
    r"""Return the statistics of one module's output, shape (..., units).

    `p50` and `p99` are over tokens, of the root mean square of a token's vector. A unit is dead where
    $\max_{b,l} |H_{b,l,j}| < 10^{-3}$ (F8); an outlier lies beyond six standard deviations of the mean (M22).
    All but `nonfinite_count` are those of the finite elements.

    Args:
        output: What the module put out.
        count_dead: Whether its last dimension are hidden units, that can be dead.
        dead_below: Largest magnitude of a dead unit, from F8.
        outlier: Distance of an outlier in standard deviations, the k of M22.
    """
    values = flat(output)
    found = moments(values)
    stats = ActivationStats(shape=list(output.shape), dtype=dtype_name(output), nonfinite_count=found.nonfinite)
    if not found.numel:
        return stats
    stats.mean, stats.std = shortest(found.mean), shortest(found.std)
    stats.min, stats.max = shortest(found.min), shortest(found.max)
    stats.rms, stats.mean_abs = shortest(_rms(found.m2, found.mean, found.finite)), shortest(found.mean_abs)
    stats.sparsity = shortest(found.zeros / found.numel)
    far = (values - found.mean).abs_() > outlier * found.std
    stats.outlier_rate = shortest(int((far & values.isfinite()).sum()) / max(found.finite, 1))
    stats.histogram = histogram(sample(values, output.shape)[0]) or UNSET
    if output.ndim:
        stats.p50, stats.p99 = (shortest(value) for value in _token_rms(values, output.shape[-1]))
        stats.units = output.shape[-1]
    # A convolution's last dimension is a place, not a unit.
    if count_dead and 2 <= output.ndim <= 3:
        stats.dead_units = int((values.reshape(-1, output.shape[-1]).abs().amax(0) < dead_below).sum())
    return stats


def _rms(m2: float, mean: float, count: int) -> float:
    return math.sqrt(m2 / count + mean * mean) if count else math.nan


def _token_rms(values: Tensor, units: int) -> list[float]:
    norms = torch.linalg.vector_norm(values.reshape(-1, units), dim=-1, dtype=torch.float64) / math.sqrt(units)
    return quantiles(sample(norms, norms.shape, exact_up_to=norms.numel())[0], (50, 99))
