"""Every value of two checkpoints, one against the other, exactly: which differ, and what only one of them has."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ckaudit.diff.ulp import identical
from ckaudit.diff.values import values


class Leaf(Struct, frozen=True):
    """One value that is not the same.

    Attributes:
        statistic: Section and field, such as weights.mean; the place in a list behind it.
        where: Tensor, module, layer or probe; None: the checkpoint as a whole.
        left: The first's value.
        right: The second's.
    """

    statistic: str
    where: str | None
    left: Any
    right: Any


class Leaves(Struct):
    """What comparing two checkpoints gave.

    Attributes:
        unequal: Values that differ, in the order in which a step computes them, a tensor's hash before its statistics.
        lacking: What only one of them has, by its name.
        equal: How many values are equal.
        hashed: How many hashes of tensor bytes were compared.
    """

    unequal: list[Leaf]
    lacking: list[str]
    equal: int = 0
    hashed: int = 0


def unequal_leaves(left: Mapping[str, Any], right: Mapping[str, Any]) -> Leaves:
    """Compare two checkpoints as plain objects."""
    found = Leaves([], [])
    for section, place, one, other in values(left, right):
        if place is not None and isinstance(one, dict) and isinstance(other, dict):
            _members(found, section, place, one, other)
        else:
            _walk(found, section, place, one, other)
    return found


def _members(found: Leaves, section: str, place: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    for key in sorted(dict.fromkeys((*left, *right)), key=lambda key: key != "hash"):
        found.hashed += key == "hash" and key in left and key in right
        _walk(found, f"{section}.{key}", place, left.get(key), right.get(key))


def _is_lacking(found: Leaves, name: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        found.lacking.append(name)
        return True
    return False


def _walk(found: Leaves, path: str, where: str | None, left: Any, right: Any) -> None:
    if _is_lacking(found, f"{path} of {where}" if where else path, left, right):
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            _walk(found, f"{path}.{key}", where, left.get(key), right.get(key))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            _walk(found, f"{path}[{index}]", where, one, other)
    elif _same(left, right):
        found.equal += 1
    else:
        found.unequal.append(Leaf(path, where, left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return isinstance(left, int | float) and isinstance(right, int | float) and identical(left, right)
    return bool(left == right)
