"""Gradients whose smallest norms are those of a few equal steps: they were rounded to multiples of one number."""

import numpy as np

from ckaudit.run.series import Floats, Series

MOST_STEPS = 16
"""Norms of more steps are left out: with the count grows the share of numbers that are near a whole one by chance."""

MIN_NORMS = 3
"""Norms besides the smallest that must fit: at `TOLERANCE`, three that do by chance are one in ten million."""

TOLERANCE = 2e-3
"""How far from a whole number a square may be, in steps: norms are recorded with five digits and more."""


def quantization_step(norm: Series | None) -> float | None:
    """Return the number of which the smallest gradients are multiples; None where there is none.

    Below its smallest normal number a format has equal steps, 2^-24 in float16. A gradient of which all elements but a few are
    rounded to zero has the norm of these: the step times the root of a whole number. So the squares of the smallest norms, at
    one checkpoint or at all of them, are whole multiples of one number, which those of other gradients never are.

    Args:
        norm: Norm of each tensor's gradient, shape (C, P).
    """
    if norm is None or not norm:
        return None
    at_each = (_step_of(row) for row in norm.values)
    return next((step for step in at_each if step is not None), None) or _step_of(norm.values)


def _step_of(norms: Floats) -> float | None:
    squares = np.unique(norms[np.isfinite(norms) & (norms > 0)]) ** 2
    if len(squares) <= MIN_NORMS or squares[0] == 0:
        return None
    for smallest in range(1, 5):  # steps that the smallest of them may have
        steps = squares[1:] / (squares[0] / smallest)
        steps = steps[steps <= MOST_STEPS]
        whole = np.unique(np.round(steps))
        is_root = np.sqrt(whole) % 1 > 0  # norms of few digits are whole multiples of one another, and no roots
        if len(whole) >= MIN_NORMS and is_root.sum() > 1 and bool((np.abs(steps - np.round(steps)) < TOLERANCE).all()):
            return float(np.sqrt(squares[0] / smallest))
    return None
