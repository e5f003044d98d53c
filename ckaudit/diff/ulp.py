"""Two numbers that are not the same, to the last bit: how they are written in hex, and how many floats lie between them."""

import math
import struct
from typing import Any


def identical(left: float, right: float) -> bool:
    """Tell whether two numbers are the same: every NaN is, and -0 is not 0.

    >>> identical(0.0, -0.0), identical(math.nan, math.nan), identical(1, 1.0)
    (False, True, True)
    """
    if left != left or right != right:  # noqa: PLR0124  NaN is the one number that differs from itself
        return left != left and right != right  # noqa: PLR0124
    return left == right and math.copysign(1, left) == math.copysign(1, right)


def ulps(left: float, right: float) -> int:
    """Return how many float64 numbers lie from one finite number to another, the last included.

    >>> ulps(1.0, 1.0 + 2**-52), ulps(-5e-324, 5e-324)
    (1, 2)
    """
    return abs(_place(left, "d", "q") - _place(right, "d", "q"))


def ulps_of_single(left: float, right: float) -> int | None:
    """Return the same among float32 numbers; None where one of them is written as no float32 would be.

    >>> ulps_of_single(0.1, 0.10000001), ulps_of_single(0.1, 0.1 + 1e-12)
    (1, None)
    """
    singles = _single(left), _single(right)
    if singles[0] is None or singles[1] is None:
        return None
    return abs(_place(singles[0], "f", "i") - _place(singles[1], "f", "i"))


def _single(value: float) -> float | None:
    """Return the float32 that a number is, or is the shortest writing of."""
    try:
        near = float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return None
    digits = next((f"{near:.{count}g}" for count in range(6, 10) if _rounds_to(f"{near:.{count}g}", near)), "")
    return near if near == value or (digits and float(digits) == value) else None


def _rounds_to(text: str, near: float) -> bool:
    return bool(struct.unpack("f", struct.pack("f", float(text)))[0] == near)


def _place(value: float, kind: str, whole: str) -> int:
    """Return the place of a float in the order of all floats of its width, 0 for both zeros."""
    bits = int(struct.unpack(whole, struct.pack(kind, value))[0])
    return bits if bits >= 0 else -(bits & (2 ** (63 if kind == "d" else 31) - 1))


def apart(left: Any, right: Any) -> str:
    """Say how two values differ, floats in hex as well.

    >>> apart(1.0, 1.0000000000000002)
    '1.0 (0x1.0000000000000p+0) and 1.0000000000000002 (0x1.0000000000001p+0), 1 ulp apart in float64'
    """
    one, other = _number(left), _number(right)
    if one is None or other is None:
        return f"{_brief(left)} and {_brief(right)}"
    said = f"{left} ({one.hex()}) and {right} ({other.hex()})"
    if not (math.isfinite(one) and math.isfinite(other)):
        return said
    count, single = ulps(one, other), ulps_of_single(one, other)
    if single is not None:
        return f"{said}, {single:,} ulp{'s' if single != 1 else ''} apart in float32, {count:,} in float64"
    return f"{said}, {count:,} ulp{'s' if count != 1 else ''} apart in float64"


def _brief(value: Any, max_characters: int = 80) -> str:
    text = str(value)
    return text if len(text) <= max_characters else text[: max_characters - 3] + "..."


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
