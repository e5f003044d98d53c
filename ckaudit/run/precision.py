"""Precision of a run: whether a loss scaler is at work, and whether everything recorded is of single precision."""

import numpy as np

from ckaudit.run.column_builder import DTYPES
from ckaudit.run.series import Series

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
