"""Refused documents without the values that violate their schema, so that the rest of a file is still audited."""

from collections.abc import Sequence
from typing import Any

import msgspec


def salvage(document: Any, kind: Any, pointers: Sequence[str], *, outwards: bool = True) -> Any:
    """Return a document without the values at some places; None if the rest does not match its type either.

    A list goes as a whole, because its other items would change their places.

    Args:
        document: The parsed document; it is changed.
        kind: The type that it should have.
        pointers: JSON pointers of the values that violate its schema.
        outwards: Where a value is required, leave out the object that holds it as well, and so on.

    >>> salvage({"weights": {"a": {"std": -1}, "b": {"std": 2}}}, dict[str, dict[str, dict[str, int]]], ["/weights/a/std"])
    {'weights': {'a': {}, 'b': {'std': 2}}}
    """
    places = {_member(document, pointer) for pointer in pointers}
    while places and () not in places:
        for place in places:
            _remove(document, place)
        try:
            return msgspec.convert(document, kind)
        except (msgspec.ValidationError, OverflowError):  # no float holds 10**400
            places = {place[:-1] for place in places} if outwards else set()
    return None


def _member(document: Any, pointer: str) -> tuple[str, ...]:
    """Return the keys that lead to a place, up to the first list on the way."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    for depth, key in enumerate(keys):
        if not isinstance(document, dict):
            return tuple(keys[:depth])
        document = document.get(key)
    return tuple(keys)


def _remove(document: Any, place: tuple[str, ...]) -> None:
    for key in place[:-1]:
        document = document.get(key) if isinstance(document, dict) else None
    if isinstance(document, dict):
        document.pop(place[-1], None)
