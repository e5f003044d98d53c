"""Bitwise comparison of the values of two checkpoints, and descriptions of differences in hex and ulps."""

import math
import struct
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ckaudit.diff.checkpoint_values import brief, values


class UnequalValue(Struct, frozen=True):
    """One value that is not the same.

    Attributes:
        statistic: Section and field, such as weights.mean, followed by an index into a list.
        where: Tensor, module, layer or probe; None: the checkpoint as a whole.
        left: Value in the first checkpoint.
        right: Value in the second.
    """

    statistic: str
    where: str | None
    left: Any
    right: Any


class UnequalValues(Struct):
    """The result of comparing two checkpoints.

    Attributes:
        unequal: Values that differ, in the order in which a step computes them, a tensor's hash before its statistics.
        lacking: Names of values that only one of them has.
        equal: Number of equal values.
        hashed: Number of compared hashes of tensor bytes.
    """

    unequal: list[UnequalValue]
    lacking: list[str]
    equal: int = 0
    hashed: int = 0


# Exact comparison of every value of two checkpoints: which differ, and which only one of them has.
def unequal_leaves(left: Mapping[str, Any], right: Mapping[str, Any]) -> UnequalValues:
    """Compare two checkpoints as plain objects."""
    leaves = UnequalValues([], [])
    for section, place, one, other in values(left, right):
        if place is not None and isinstance(one, dict) and isinstance(other, dict):
            for key in sorted(dict.fromkeys((*one, *other)), key=lambda key: key != "hash"):
                leaves.hashed += key == "hash" and key in one and key in other
                _walk(leaves, f"{section}.{key}", place, one.get(key), other.get(key))
        else:
            _walk(leaves, section, place, one, other)
    return leaves


def _walk(leaves: UnequalValues, path: str, where: str | None, left: Any, right: Any) -> None:
    if left is None or right is None:
        leaves.lacking.append(f"{path} of {where}" if where else path)
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            _walk(leaves, f"{path}.{key}", where, left.get(key), right.get(key))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            _walk(leaves, f"{path}[{index}]", where, one, other)
    elif _same(left, right):
        leaves.equal += 1
    else:
        leaves.unequal.append(UnequalValue(path, where, left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return isinstance(left, int | float) and isinstance(right, int | float) and identical(left, right)
    return bool(left == right)


# Two numbers that differ in some bit.
def identical(left: float, right: float) -> bool:
    """Tell whether two numbers are identical: all NaNs are, and -0 is not 0.

    >>> identical(0.0, -0.0), identical(math.nan, math.nan), identical(1, 1.0)
    (False, True, True)
    """
    if left != left or right != right:  # noqa: PLR0124  NaN is the one number that differs from itself
        return left != left and right != right  # noqa: PLR0124
    return left == right and math.copysign(1, left) == math.copysign(1, right)


def ulps(left: float, right: float) -> int:
    """Return the distance of two finite numbers in float64 steps (ulps).

    >>> ulps(1.0, 1.0 + 2**-52), ulps(-5e-324, 5e-324)
    (1, 2)
    """
    return abs(_place(left, "d", "q") - _place(right, "d", "q"))


def ulps_of_single(left: float, right: float) -> int | None:
    """Return the distance in float32 steps; None if one of them is not the written form of a float32.

    >>> ulps_of_single(0.1, 0.10000001), ulps_of_single(0.1, 0.1 + 1e-12)
    (1, None)
    """
    singles = _single(left), _single(right)
    if singles[0] is None or singles[1] is None:
        return None
    return abs(_place(singles[0], "f", "i") - _place(singles[1], "f", "i"))


def _single(value: float) -> float | None:
    """Return the float32 that a number is, or is the shortest decimal of; None if there is none."""
    try:
        near = float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return None
    digits = next((f"{near:.{count}g}" for count in range(6, 10) if _rounds_to(f"{near:.{count}g}", near)), "")
    return near if near == value or (digits and float(digits) == value) else None


def _rounds_to(text: str, near: float) -> bool:
    return bool(struct.unpack("f", struct.pack("f", float(text)))[0] == near)


def _place(value: float, kind: str, whole: str) -> int:
    """Return the index of a float among all floats of its width, 0 for both zeros."""
    bits = int(struct.unpack(whole, struct.pack(kind, value))[0])
    return bits if bits >= 0 else -(bits & (2 ** (63 if kind == "d" else 31) - 1))


def describe_difference(left: Any, right: Any) -> str:
    """Return a description of how two values differ, with floats also in hex.

    >>> describe_difference(1.0, 1.0000000000000002)
    '1.0 (0x1.0000000000000p+0) and 1.0000000000000002 (0x1.0000000000001p+0), 1 ulp apart in float64'
    """
    one, other = _float_of(left), _float_of(right)
    if one is None or other is None:
        return f"{brief(left)} and {brief(right)}"
    numbers = f"{left} ({one.hex()}) and {right} ({other.hex()})"
    if not (math.isfinite(one) and math.isfinite(other)):
        return numbers
    count, single = ulps(one, other), ulps_of_single(one, other)
    if single is not None:
        return f"{numbers}, {single:,} ulp{'s' if single != 1 else ''} apart in float32, {count:,} in float64"
    return f"{numbers}, {count:,} ulp{'s' if count != 1 else ''} apart in float64"


def _float_of(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
