"""Numbers as they are written: in few digits that name the same float32."""

from struct import Struct

import numpy as np
from numpy.typing import ArrayLike

from ckaudit.contract.numbers import Number, to_word

DIGITS = (7, 8, 9)  # nine name every float32; few statistics need less than seven
FORMS = ("%.7g", "%.8g", "%.9g")
FLOAT32 = Struct("f")

SMALLEST, LARGEST = 1e-37, 1e38  # magnitudes that a float32 holds in full


def shorten_all(values: ArrayLike) -> list[float]:
    """Return each value in the fewest digits, from seven on, that name the same float32; zeros at the end count for none.

    Values that a float32 cannot hold as a normal number keep all their digits.

    >>> shorten_all([0.10000000149011612, 1e300, float("inf")])
    [0.1, 1e+300, inf]
    """
    exact = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        narrow = exact.astype(np.float32)
    found: list[float] = exact.tolist()
    left = [index for index, value in enumerate(found) if SMALLEST < abs(value) < LARGEST]
    texts: list[float] = narrow.tolist()
    for digits in DIGITS:
        rounded = [float(f"{texts[index]:.{digits}g}") for index in left]
        right = np.array(rounded, dtype=np.float32) == narrow[left]
        for index, value in zip(left, rounded, strict=True):
            found[index] = value
        left = [index for index, is_right in zip(left, right.tolist(), strict=True) if not is_right]
        if not left:
            break
    return found


def shorten(value: float) -> float:
    """Return `shorten_all` of one value, without NumPy: a step of a training finds none of it in the cache.

    >>> shorten(0.10000000149011612)
    0.1
    """
    if not SMALLEST < abs(value) < LARGEST:
        return value
    narrow = FLOAT32.pack(value)
    (whole,) = FLOAT32.unpack(narrow)
    for form in FORMS:
        short = float(form % whole)
        if FLOAT32.pack(short) == narrow:
            return short
    return value


def shortest_of(values: ArrayLike) -> list[Number]:
    """Return `shorten_all`, with the contract's words for what is not finite."""
    return [to_word(value) for value in shorten_all(values)]


def shortest(value: float) -> Number:
    """Return `shortest_of` one value."""
    return to_word(shorten(value))
