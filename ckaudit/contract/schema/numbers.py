"""The number types of the contract, and how a non-finite number is written.

JSON has no NaN and no infinity, so the contract writes them as the words of `NonFinite`.
A field that is absent was *not recorded*; a field that holds "NaN" was *recorded as NaN*.
"""

from typing import Annotated, Literal

from msgspec import Meta

NonFinite = Literal["NaN", "Infinity", "-Infinity"]
Number = float | NonFinite
NonNegative = Annotated[float, Meta(ge=0)] | NonFinite
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
INFINITY = float("inf")

Step = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def doc(text: str, *, unit: str | None = None, shape: str | None = None) -> Meta:
    """Describe one field: its meaning, its unit ("1" for a pure number) and the shape of an array."""
    extra = {key: value for key, value in (("unit", unit), ("shape", shape)) if value is not None}
    return Meta(description=text, extra_json_schema=extra or None)


def to_word(value: float) -> Number:
    """Return `value`, or the contract's word for it where it is not finite.

    >>> to_word(float("-inf")), to_word(1.5)
    ('-Infinity', 1.5)
    """
    if value != value:  # noqa: PLR0124  NaN is the one number that differs from itself
        return "NaN"
    if value == INFINITY:
        return "Infinity"
    return "-Infinity" if value == -INFINITY else value
