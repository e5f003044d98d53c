"""Maps a local copy back to the address that the user gave, for all output."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

Document = TypeVar("Document")

_GIVEN: dict[str, str] = {}
"""The address of each copy made by this process, in the form for output."""


def remember(copy: Path, address: str) -> None:
    """Note that a copy is shown as an address."""
    _GIVEN[str(copy)] = address


def address_of(path: str | os.PathLike[str]) -> str:
    """Return the address of a copy itself, not of paths below it; empty if the path is no copy."""
    return _GIVEN.get(os.fspath(path), "")


def as_given(text: str) -> str:
    """Return a text with each path of a copy replaced by the address that the user gave."""
    if not _GIVEN or not any(copy in text for copy in _GIVEN):
        return text
    longest_first = sorted(_GIVEN, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return pattern.sub(lambda match: _GIVEN[match[0]], text)


def with_addresses(document: Document) -> Document:
    """Return a document, a struct or a collection, with each path of a copy replaced by the address that the user gave."""
    return _changed(document) if _GIVEN else document


def _changed(value: Any) -> Any:
    import msgspec

    if isinstance(value, str):
        return as_given(value)
    if isinstance(value, msgspec.Struct):
        new = {name: changed for name in value.__struct_fields__ if (changed := _changed(old := getattr(value, name))) is not old}
        return msgspec.structs.replace(value, **new) if new else value
    if isinstance(value, Mapping):
        pairs = {_changed(key): _changed(item) for key, item in value.items()}
        same = all(old is new for old, new in zip(value.values(), pairs.values(), strict=False)) and pairs.keys() == value.keys()
        return value if same else pairs
    if isinstance(value, tuple | list):
        items = [_changed(item) for item in value]
        if all(old is new for old, new in zip(value, items, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
