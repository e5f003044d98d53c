"""How finely a log was rounded: the smallest step that its numbers can take."""

import numpy as np

from ckaudit.run.series import Floats

BFLOAT16_TAIL = 0xFFFF  # the bits of a float32 that a bfloat16 does not have
BFLOAT16_DIGITS = 7  # binary digits of a bfloat16 after its leading one


def resolution(values: Floats) -> Floats:
    """Return the step between each number and its neighbours in the coarsest notation that writes it, shape (N,).

    Two notations are known: decimals, and bfloat16, in which a loss near 3 moves by 1/64. What is short in decimals may
    be so by chance: only the smallest step among many numbers of a log tells how it was rounded.

    >>> resolution(np.array([3.28, 3.3]))
    array([0.01, 0.1 ])
    """
    return np.maximum(decimal_step(values), bfloat16_step(values))


def decimal_step(values: Floats, *, max_decimals: int = 8, slack: float = 1e-14) -> Floats:
    """Return 10 to the minus decimals of each number, 0 where it has more than `max_decimals`.

    Args:
        values: Finite numbers, shape (N,).
        max_decimals: Decimals looked for; longer numbers were not rounded on purpose.
        slack: How far from a whole number a shifted one may lie, relative to itself: float64 keeps nearly 16 digits.
    """
    steps = np.zeros(len(values))
    for decimals in range(max_decimals, -1, -1):
        with np.errstate(over="ignore", invalid="ignore"):
            shifted = values * 10.0**decimals
            short = np.abs(shifted - np.rint(shifted)) <= slack * np.abs(shifted)
        steps[short] = 10.0**-decimals
    return steps


def bfloat16_step(values: Floats) -> Floats:
    """Return the distance to the next bfloat16 of each number that is one, else 0, shape (N,)."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    exact = (single == values) & (single.view(np.uint32) & BFLOAT16_TAIL == 0) & (values != 0)
    _, exponent = np.frexp(np.where(exact, values, 1.0))
    return np.where(exact, np.ldexp(1.0, exponent - 1 - BFLOAT16_DIGITS), 0.0)
