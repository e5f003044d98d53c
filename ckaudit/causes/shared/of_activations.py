"""What causes ask of activation functions: which give hardly anything but zeros, and which have bounds."""

import re
from collections.abc import Collection

import numpy as np

from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable

_FUNCTION = re.compile(r"(^|[._])(act\w*|\w*relu\w*|\w*gelu\w*|\w*silu\w*|\w*sigmoid\w*|\w*tanh\w*)$", re.IGNORECASE)


def is_function(name: str) -> bool:
    """Tell whether a module's name says that it is an activation function.

    >>> [is_function(name) for name in ("blocks.0.mlp.act", "layers.1.relu", "blocks.0.mlp.up")]
    [True, True, False]
    """
    return _FUNCTION.search(name) is not None


def silent(
    sparsity: Series, depths: Collection[int | None], min_zero_share: float, table: TensorTable
) -> tuple[str, float] | None:
    """Return the activation function in one of some blocks with most zeros, and their share at the median checkpoint.

    Args:
        sparsity: Share of exact zeros in each module's output.
        depths: Blocks to look at.
        min_zero_share: None where not even this share is zero.
        table: Tells the block of a module.
    """
    found = {}
    for column, name in enumerate(sparsity.labels):
        known = sparsity.values[sparsity.finite_in(column), column]
        if is_function(name) and known.size and table.depth(name) in depths:
            found[name] = median(known)
    most = max(found.items(), key=lambda item: item[1], default=None)
    return most if most is not None and most[1] >= min_zero_share else None


def bounded(largest: Series, usual: Series, *, reach: float = 0.7, share: float = 0.3) -> list[str]:
    """Return the activation functions that work between bounds: outputs come up to `reach`, never beyond 1, and are no zeros.

    The usual magnitude of a sigmoid's outputs is half; that of functions open to one side is small beside their largest.

    Args:
        largest: Largest magnitude of each module's outputs.
        usual: Mean magnitude of the same.
        reach: A function with bounds comes near them.
        share: Mean magnitude over the largest, at least.
    """
    found = []
    for column, name in enumerate(largest.labels):
        known = largest.values[largest.finite_in(column), column]
        if not is_function(name) or not known.size or name not in usual.labels or not reach <= known.max() <= 1:
            continue
        mean = usual.values[:, usual.labels.index(name)]
        if float(np.nanmedian(mean)) > share * median(known):
            found.append(name)
    return found
