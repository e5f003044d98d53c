"""Rounding of written numbers: the fewest digits that name the same float32."""

from struct import Struct
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckaudit.contract.schema.checkpoint import PackedGrid
from ckaudit.contract.schema.numbers import Number, encode_float

T = TypeVar("T")

DIGITS = np.array([[7], [8], [9]])  # nine digits identify every float32; few statistics need less than seven
FLOAT32 = Struct("f")

SMALLEST, LARGEST = 1e-37, 1e38  # magnitudes that are normal float32 numbers
TENS = 10.0 ** np.arange(23)  # powers of ten that a float64 holds exactly
LOWEST, HIGHEST = 1e-13, 1e15  # magnitudes whose ninth digit is reached with one exact power of ten


def shorten_all(values: ArrayLike) -> list[float]:
    """Return each value in the fewest digits, at least seven, that give the same float32; trailing zeros are dropped.

    Values that a float32 cannot hold as a normal number keep all their digits.

    >>> shorten_all([0.10000000149011612, 1e300, float("inf")])
    [0.1, 1e+300, inf]
    """
    exact = np.asarray(values, dtype=np.float64)
    shortened: list[float] = exact.tolist()
    size = np.abs(exact)
    ordinary = ((size > LOWEST) & (size < HIGHEST)).nonzero()[0]
    narrow = exact[ordinary].astype(np.float32)
    candidates = _rounded(narrow.astype(np.float64), DIGITS)  # (3, n)
    first = (candidates.astype(np.float32) == narrow).argmax(0)
    for index, value in zip(ordinary.tolist(), candidates[first, np.arange(ordinary.size)].tolist(), strict=True):
        shortened[index] = value
    if ordinary.size < size.size:
        for index in ((size <= LOWEST) | (size >= HIGHEST)).nonzero()[0].tolist():
            shortened[index] = shorten(shortened[index])
    return shortened


def _rounded(values: NDArray[np.float64], digits: int | NDArray[np.intp]) -> NDArray[np.float64]:
    """Return values of ordinary magnitude rounded to `digits` digits: the float64 that parsing each decimal gives.

    An integer below 2^53, multiplied or divided once by an exact power of ten, is rounded once.
    """
    places = digits - 1 - np.floor(np.log10(np.abs(values))).astype(np.intp)
    up, down = TENS[np.maximum(places, 0)], TENS[np.maximum(-places, 0)]
    rounded: NDArray[np.float64] = np.rint(values * up / down) / up * down
    return rounded


def significant_all(values: NDArray[np.float64], digits: int = 4) -> list[list[Number]]:
    """Return rows of numbers, shape (P, n), as `contract.encode.significant` writes each.

    >>> significant_all(np.array([[0.123456, -98765.4], [0.0, float("inf")]]))
    [[0.1235, -98770.0], [0.0, 'Infinity']]
    """
    size = np.abs(values)
    ordinary = (size > LOWEST) & (size < HIGHEST)
    if ordinary.all():
        return _rounded(values, digits).tolist()  # type: ignore[no-any-return]
    rounded = values.copy()
    rounded[ordinary] = _rounded(values[ordinary], digits)
    rest = ~ordinary & (size > 0)
    rounded[rest] = [float(f"{value:.{digits}g}") for value in values[rest].tolist()]
    return [[encode_float(value) for value in row] for row in rounded.tolist()]


def shorten(value: float) -> float:
    """Return `shorten_all` of one value, without NumPy, whose code is not in the CPU cache during a training step.

    >>> shorten(0.10000000149011612)
    0.1
    """
    if not SMALLEST < abs(value) < LARGEST:
        return value
    narrow = FLOAT32.pack(value)
    (whole,) = FLOAT32.unpack(narrow)
    short = float(f"{whole:.8g}")
    if FLOAT32.pack(short) != narrow:
        return float(f"{whole:.9g}")
    shorter = float(f"{whole:.7g}")
    return shorter if FLOAT32.pack(shorter) == narrow else short


def round_to_seven_digits(value: float) -> float:
    """Return a number in seven digits, the precision of a float32; for sums in float64, which are no float32.

    >>> round_to_seven_digits(0.12345678)
    0.1234568
    """
    return float(f"{value:.7g}")


def shortest_of(values: ArrayLike) -> list[Number]:
    """Return `shorten_all`, with the contract's strings for values that are not finite."""
    return [encode_float(value) for value in shorten_all(values)]


def shortest(value: float) -> Number:
    """Return `shortest_of` one value."""
    return encode_float(shorten(value))


def short_ends(grid: T, *, tolerance: float = 0.01) -> T:
    """Round the end points of a packed grid to the shortest decimals of the same float32.

    Args:
        grid: A packed grid, which is changed in place; other grids are left alone.
        tolerance: Maximum change of the end points, as a share of half a quantization step, the error of the cells.
    """
    if isinstance(grid, PackedGrid):
        low, high = float(grid.min), float(grid.max)
        short = shorten(low), shorten(high)
        if abs(short[0] - low) + abs(short[1] - high) <= tolerance * (high - low) / 510:
            grid.min, grid.max = short
    return grid
