"""The number types of the contract, how a non-finite number is written, and arithmetic that overflows without a warning.

JSON has no NaN and no infinity, so the contract writes them as the words of `NonFinite`.
A field that is absent was *not recorded*; a field that holds "NaN" was *recorded as NaN*.
"""

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Literal, ParamSpec, TypeVar

from msgspec import Meta

NonFinite = Literal["NaN", "Infinity", "-Infinity"]
Number = float | NonFinite
NonNegative = Annotated[float, Meta(ge=0)] | NonFinite
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
INFINITY = float("inf")

Step = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Arguments = ParamSpec("Arguments")
T = TypeVar("T")


def doc(text: str, *, unit: str | None = None, shape: str | None = None) -> Meta:
    """Describe one field: its meaning, its unit ("1" for a pure number) and the shape of an array."""
    extra = {key: value for key, value in (("unit", unit), ("shape", shape)) if value is not None}
    return Meta(description=text, extra_json_schema=extra or None)


def encode_float(value: float) -> Number:
    """Return `value`, or the contract's word for it where it is not finite.

    >>> encode_float(float("-inf")), encode_float(1.5)
    ('-Infinity', 1.5)
    """
    if value != value:  # noqa: PLR0124  NaN is the one number that differs from itself
        return "NaN"
    if value == INFINITY:
        return "Infinity"
    return "-Infinity" if value == -INFINITY else value


def finite(value: Number | str | None) -> float | None:
    """Return a value as a number, None where it is missing or not finite.

    >>> finite(2), finite("NaN"), finite(None)
    (2.0, None, None)
    """
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def total(values: Iterable[float]) -> float:
    """Return the exact sum of numbers; infinite where it overflows, NaN where infinities cancel out.

    >>> total([1e308, 1e308, -1e308]), total([0.1] * 10)
    (inf, 1.0)
    """
    numbers = [*values]
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return float(sum(numbers))


def ignoring_float_errors(function: Callable[Arguments, T]) -> Callable[Arguments, T]:
    """Let what overflows in a function become infinite, and what is undefined NaN, without a warning.

    Every door by which recorded numbers come in has this, and nothing behind a door needs it. Not for generators: they run
    in the time of whoever asks them.
    """
    import numpy as np  # documents are read and written without it

    return np.errstate(all="ignore")(function)
