"""Precision of a run: whether a loss scaler is at work or all is of single precision; gradients not finite that were overcome."""

import numpy as np

from ckaudit.run.column_builder import DTYPES
from ckaudit.run.series import Floats, Mask, Series

SINGLE = [DTYPES.index(name) for name in ("float32", "float64")]


def is_scaled(scale: Series | None) -> bool:
    """Tell whether the loss is scaled: a run in single precision logs no scale, or one that is 1 throughout."""
    return scale is not None and bool((scale.values[scale.finite] > 1).any())


def is_single(types: Series | None) -> bool:
    """Tell whether modules computed in single precision: their outputs' types are recorded, and none has less than 32 bits.

    Weights of 32 bits alone do not say it, for autocast computes in half precision from them.
    """
    outputs = types.only(lambda label: label.startswith("activations/")) if types is not None else None
    known = outputs.values[outputs.finite] if outputs is not None else np.empty(0)
    return bool(known.size) and bool(np.isin(known, SINGLE).all())


def overcome(norm: Series) -> Mask:
    """Tell at which points a gradient norm that was not finite cannot have reached the weights, shape (T, 1).

    A gradient that is not finite makes weights so if it is applied, and weights that are not finite never give a finite
    gradient again. Where one comes later, the update was left out, as a loss scaler does it. At the end of the log, where
    nothing comes later, as many in a row count as were left behind before.
    """
    found = np.zeros(len(norm.steps))
    good = np.flatnonzero(norm.finite[:, 0] & (norm.values[:, 0] > 0))
    bad = np.flatnonzero(norm.nonfinite[:, 0])
    if not len(good):
        return found[:, None] > 0
    found[bad[bad < good[-1]]] = 1
    at_the_end = bad[bad > good[-1]]
    if len(at_the_end) <= _longest(found):
        found[at_the_end] = 1
    return np.asarray(found[:, None] > 0)


def _longest(marks: Floats) -> int:
    """Return the length of the longest stretch of ones."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0.0], marks, [0.0]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))
