"""Measures of activation functions for causes: which of them put out mostly zeros, and which are bounded."""

import re
from collections.abc import Collection

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable

_FUNCTION = re.compile(r"(^|[._])(act\w*|\w*relu\w*|\w*gelu\w*|\w*silu\w*|\w*sigmoid\w*|\w*tanh\w*)$", re.IGNORECASE)


def is_activation_function(name: str) -> bool:
    """Tell whether a module's name says that it is an activation function.

    >>> [is_activation_function(name) for name in ("blocks.0.mlp.act", "layers.1.relu", "blocks.0.mlp.up")]
    [True, True, False]
    """
    return _FUNCTION.search(name) is not None


def mostly_zero_function(
    sparsity: Series, depths: Collection[int | None], min_zero_share: float, table: TensorTable
) -> tuple[str, float] | None:
    """Return the activation function with the largest share of zeros in some blocks, and that share at the median checkpoint.

    Args:
        sparsity: Share of exact zeros in each module's output.
        depths: The blocks.
        min_zero_share: The result is None where no function has this share of zeros.
        table: Tells the block of a module.
    """
    zero_shares = {}
    for column, name in enumerate(sparsity.labels):
        known = sparsity.values[sparsity.finite_in(column), column]
        if is_activation_function(name) and known.size and table.depth(name) in depths:
            zero_shares[name] = median(known)
    sparsest = max(zero_shares.items(), key=lambda item: item[1], default=None)
    return sparsest if sparsest is not None and sparsest[1] >= min_zero_share else None


def all_zero_module_before(sparsity: Series | None, function: str | None) -> str | None:
    """Return the module just before an activation function in the forward pass, where its whole output is zero at every record.

    An activation function that gets only zeros is silent for that reason, and not by itself.

    Args:
        sparsity: Share of exact zeros in each module's output, in the order of the forward pass.
        function: The function.
    """
    place = sparsity.places[function] - 1 if sparsity is not None and function in sparsity.places else -1
    if sparsity is None or place < 0 or is_activation_function(sparsity.labels[place]):
        return None
    known = sparsity.values[sparsity.finite_in(place), place]
    return sparsity.labels[place] if known.size and (known == 1).all() else None


def bounded_functions(largest: Series, usual: Series, *, reach: float = 0.7, share: float = 0.3) -> list[str]:
    """Return the activation functions that are bounded, such as sigmoid: outputs reach `reach`, never exceed 1, and are not zero.

    The mean magnitude of a sigmoid's outputs is one half; that of functions open to one side is small beside their largest.

    Args:
        largest: Largest magnitude of each module's outputs.
        usual: Mean magnitude of each module's outputs.
        reach: Least value of the largest magnitude: a bounded function comes near its bounds.
        share: Least ratio of the mean magnitude to the largest.
    """
    names = []
    for column, name in enumerate(largest.labels):
        known = largest.values[largest.finite_in(column), column]
        if not is_activation_function(name) or not known.size or name not in usual.places or not reach <= known.max() <= 1:
            continue
        mean = usual.values[:, usual.places[name]]
        if median(mean[~np.isnan(mean)]) > share * median(known):
            names.append(name)
    return names
