"""Keys of a document that the contract does not know, and keys that stand twice."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.io.columns import count_colons
from ckaudit.contract.io.json_locations import escape, line_at, walk
from ckaudit.contract.schema.report import Finding


class Unknown(Struct, frozen=True):
    """A field that the contract does not know: how often it stands, and the JSON pointer to the first."""

    times: int
    pointer: str


class _Plan(Struct, frozen=True):
    """Where objects can stand inside a field: under its keys, in its items, or right there."""

    values: "tuple[_Plan, ...]" = ()
    items: "tuple[_Plan, ...]" = ()
    kind: type[Struct] | None = None


Path = tuple[str, ...]
ANY, ITEM = "*", "[]"


def unknown_fields(document: dict[str, Any], kind: type[Struct]) -> tuple[dict[str, Unknown], int]:
    """Find the fields that `kind` does not have, by path, and count the colons that stand in their names and values.

    In a path `*` stands for the name of a tensor or layer and `[]` for an index.

    >>> from ckaudit.contract.schema.checkpoint import Checkpoint
    >>> unknown_fields({"step": 1, "weights": {"a": {"mean": 0, "skew": 1}, "b": {"skew": {"x": 2}}}}, Checkpoint)
    ({'weights.*.skew': Unknown(times=2, pointer='/weights/a/skew')}, 3)
    """
    found: Counter[Path] = Counter()
    colons = _compare([document], kind, (), found)
    return {_shown(path): Unknown(times, _first(document, path) or "") for path, times in found.items()}, colons


def _shown(path: Path) -> str:
    """Return a path as it is written, such as optimizer.groups[].betas."""
    return ".".join(path).replace(f".{ITEM}", ITEM)


def _compare(objects: list[dict[str, Any]], kind: type[Struct], path: Path, found: Counter[Path]) -> int:
    """Compare objects that should all be of one kind, whole key sets at a time, and return the colons of what is unknown.

    Args:
        objects: Objects at the same path, such as the statistics of all weights.
        kind: The type they should have.
        path: Their path.
        found: Where unknown fields are counted.
    """
    plans = _plans(kind)
    keys = set(chain.from_iterable(objects))
    hidden = 0
    for key in keys - plans.keys():
        values = [item[key] for item in objects if key in item]
        found[*path, key] += len(values)
        hidden += len(values) * (1 + key.count(":")) + sum(map(count_colons, values))
    for key in keys & plans.keys():
        if plans[key]:
            values = [item[key] for item in objects if key in item]
            hidden += sum(_descend(values, plan, (*path, key), found) for plan in plans[key])
    return hidden


def _descend(values: list[Any], plan: _Plan, path: Path, found: Counter[Path]) -> int:
    """Compare the objects inside the values of one field, wherever its plan says they can stand."""
    if plan.kind is not None:
        return _compare([value for value in values if isinstance(value, dict)], plan.kind, path, found)
    if plan.values:
        inner = [*chain.from_iterable(value.values() for value in values if isinstance(value, dict))]
        return sum(_descend(inner, value, (*path, ANY), found) for value in plan.values)
    inner = [*chain.from_iterable(value for value in values if isinstance(value, list))]
    return sum(_descend(inner, item, (*path, ITEM), found) for item in plan.items)


def _first(node: Any, path: Path) -> str | None:
    """Return the pointer to the first value at a path; None where `node` has none."""
    if not path:
        return ""
    head, rest = path[0], path[1:]
    if isinstance(node, list):
        steps: Any = enumerate(node) if head == ITEM else ()
    elif isinstance(node, dict):
        # The last part is the unknown key itself, even where it looks like a wildcard.
        steps = node.items() if head == ANY and rest else [(head, node[head])] if head in node else ()
    else:
        steps = ()
    found = ((key, _first(part, rest)) for key, part in steps)
    return next((f"/{escape(str(key))}{below}" for key, below in found if below is not None), None)


@cache
def _plans(kind: type[Struct]) -> dict[str, tuple[_Plan, ...]]:
    """Return where objects can stand inside each field."""
    return {name: tuple(_places(hint)) for name, hint in get_type_hints(kind).items()}


def _places(hint: Any) -> Iterator[_Plan]:
    """Yield the places inside a type hint where objects can stand: none for numbers and text."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and not inner and issubclass(hint, Struct):
        yield _Plan(kind=hint)
    elif origin is dict and (below := tuple(_places(inner[1]))):
        yield _Plan(values=below)
    elif origin is list and (below := tuple(_places(inner[0]))):
        yield _Plan(items=below)
    elif origin is Annotated:
        yield from _places(inner[0])
    elif origin in (Union, UnionType):
        for choice in inner:
            yield from _places(choice)


def unknown_findings(unknown: dict[str, Unknown], file: str, version: str) -> list[Finding]:
    """Return one finding per unknown field, however often it stands."""
    return [
        violations.UNKNOWN_FIELD.at(
            file,
            f"{path} stands {'once' if field.times == 1 else f'{field.times} times'}; {version} has no such field",
            pointer=field.pointer,
            expected=f"a field of {version}",
            found=path,
        )
        for path, field in sorted(unknown.items())
    ]


def duplicate_findings(text: str, file: str) -> list[Finding]:
    """Return one finding per key that stands again in its object."""
    if not _repeats(text):
        return []
    return [
        violations.DUPLICATE_KEY.at(
            file,
            f"{spot.pointer} stands twice",
            pointer=spot.pointer,
            line=line_at(text, spot.offset),
            expected="each key once",
            found="the key again",
        )
        for spot in walk(text)
        if spot.repeated
    ]


def _repeats(text: str) -> bool:
    """Tell whether any object of a JSON text has a key twice."""
    repeated = 0

    def count(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        made = dict(members)
        repeated += len(members) - len(made)
        return made

    import json

    json.loads(text, object_pairs_hook=count)
    return repeated > 0
