"""Tensors whose gradient is zero by mathematics, whatever the run does: they are no sign of an illness."""

import numpy as np

from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable


def cancelled(gradient: Series | None, table: TensorTable, *, rounding: float = 1e-4) -> frozenset[str]:
    """Return the tensors whose gradient cancels out, by what is known of them or by the weight beside them.

    A bias adds up what its own module's weight multiplies with the input. Where the weight has a gradient and the bias has
    none above rounding, the path is open and the parts of the sum cancel: behind it, a normalization subtracts what
    is the same everywhere, or a softmax is blind to it.

    Args:
        gradient: Gradient norms, shape (T, P).
        table: What is known of the tensors.
        rounding: What float32 leaves of a sum that cancels, relative to the weight's gradient.
    """
    if gradient is None:
        return frozenset()
    known = {name for name in gradient.labels if table.no_gradient_reason(name) is not None}
    columns = {name: place for place, name in enumerate(gradient.labels)}
    for name, place in columns.items():
        weight = columns.get(f"{name[:-4]}weight") if name.endswith(".bias") else None
        if weight is None:
            continue
        both = gradient.finite_in(place) & gradient.finite_in(weight) & (gradient.values[:, weight] > 0)
        own, other = gradient.values[both, place], gradient.values[both, weight]
        if len(own) and bool(np.all(own < rounding * other)):
            known.add(name)
    return frozenset(known)
