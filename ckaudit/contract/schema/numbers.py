"""The number types of the contract, the notation of non-finite numbers, and arithmetic that overflows without a warning.

JSON has no NaN and no infinity, so the contract writes them as the words of `NonFinite`. An absent field is *not recorded*; a
field with "NaN" is *recorded as NaN*.
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
    """Return `value`, or the contract's word if it is not finite.

    >>> encode_float(float("-inf")), encode_float(1.5)
    ('-Infinity', 1.5)
    """
    if value != value:  # noqa: PLR0124  NaN is the one number that differs from itself
        return "NaN"
    if value == INFINITY:
        return "Infinity"
    return "-Infinity" if value == -INFINITY else value


def finite(value: Number | str | None) -> float | None:
    """Return a value as a number; None if it is missing or not finite.

    >>> finite(2), finite("NaN"), finite(None)
    (2.0, None, None)
    """
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def total(values: Iterable[float]) -> float:
    """Return the exact sum of numbers; infinite if it overflows, NaN if infinities cancel.

    >>> total([1e308, 1e308, -1e308]), total([0.1] * 10)
    (inf, 1.0)
    """
    numbers = [*values]
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return float(sum(numbers))


def ignoring_float_errors(function: Callable[Arguments, T]) -> Callable[Arguments, T]:
    """Run a function in which overflow gives infinity and undefined results give NaN, without warnings.

    Every entry point for recorded numbers uses this decorator, so code behind one does not need it. It does not suit generators,
    because their body runs in the caller's context.
    """
    import numpy as np  # imported late: documents are read and written without numpy

    return np.errstate(all="ignore")(function)
