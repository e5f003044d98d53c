"""Gradients that were not finite and that a training left behind, told by its gradient norms alone."""

import numpy as np

from ckaudit.run.series import Floats, Mask, Series


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
