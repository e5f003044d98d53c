"""Keys of a document that the contract does not know, and keys that stand twice."""

from collections import Counter
from functools import cache
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.columns import count_keys
from ckaudit.contract.locate import line_at, walk
from ckaudit.contract.report import Finding


def unknown_fields(document: dict[str, Any], kind: type[Struct]) -> tuple[Counter[str], int]:
    """Count the fields that `kind` does not have, by path, and all keys in and under them.

    In a path `*` stands for the name of a tensor or layer and `[]` for an index.

    >>> from ckaudit.contract.analysis import Checkpoint
    >>> unknown_fields({"step": 1, "weights": {"a": {"mean": 0, "skew": 1}, "b": {"skew": {"x": 2}}}}, Checkpoint)
    (Counter({'weights.*.skew': 2}), 3)
    """
    found: Counter[str] = Counter()
    keys = _compare([document], kind, "", found)
    return found, keys


def _compare(objects: list[dict[str, Any]], kind: type[Struct], path: str, found: Counter[str]) -> int:
    fields = _fields(kind)
    keys = set(chain.from_iterable(objects))
    hidden = 0
    for key in keys - fields.keys():
        values = [item[key] for item in objects if key in item]
        found[path + key] += len(values)
        hidden += len(values) + sum(map(count_keys, values))
    for key in keys & fields.keys():
        if fields[key] is not None:
            hidden += _descend([item[key] for item in objects if key in item], fields[key], path + key, found)
    return hidden


def _descend(values: list[Any], expected: Any, path: str, found: Counter[str]) -> int:
    origin, inner = get_origin(expected), get_args(expected)
    if origin is dict:
        return _descend([*chain.from_iterable(value.values() for value in values)], inner[1], f"{path}.*", found)
    if origin is list:
        return _descend(
            [*chain.from_iterable(value for value in values if isinstance(value, list))], inner[0], f"{path}[]", found
        )
    if origin in (Union, UnionType):
        return sum(_descend(values, choice, path, found) for choice in inner)
    if isinstance(expected, type) and issubclass(expected, Struct):
        return _compare([value for value in values if isinstance(value, dict)], expected, f"{path}.", found)
    return 0


@cache
def _fields(kind: type[Struct]) -> dict[str, Any]:
    """Return the type of each field where an object can stand, None where none can."""
    hints = get_type_hints(kind)
    return {name: hint if _holds_struct(hint) else None for name, hint in hints.items()}


def _holds_struct(hint: Any) -> bool:
    if isinstance(hint, type) and not get_args(hint):
        return issubclass(hint, Struct)
    if get_origin(hint) is Annotated:
        return _holds_struct(get_args(hint)[0])
    return any(_holds_struct(part) for part in get_args(hint))


def unknown_findings(unknown: Counter[str], file: str, version: str) -> list[Finding]:
    """Return one finding per unknown field, however often it stands."""
    return [
        violations.UNKNOWN_FIELD.at(file, f"{path} stands {times}; {version} has no such field", found=path)
        for path, count in sorted(unknown.items())
        for times in ["once" if count == 1 else f"{count} times"]
    ]


def duplicate_findings(text: str, file: str) -> list[Finding]:
    """Return one finding per key that stands again in its object."""
    return [
        violations.DUPLICATE_KEY.at(
            file, f"{spot.pointer} stands twice", pointer=spot.pointer, line=line_at(text, spot.offset), expected="each key once"
        )
        for spot in walk(text)
        if spot.repeated
    ]
