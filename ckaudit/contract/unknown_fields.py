"""Names in a document that the contract does not know: unknown keys, repeated keys, and unknown words of a list.

An unknown key is counted and reported. An unknown word, such as a user-defined trigger, makes no number wrong: the document is
read with a type that accepts any word, and the word counts as none of the list and is reported.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, reduce
from itertools import chain
from operator import is_, or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from ckaudit.contract import violations
from ckaudit.contract.io.columns import count_colons
from ckaudit.contract.io.json_locations import escape, line_at, pointer_of, walk
from ckaudit.contract.schema.report import Finding

MAX_LISTED = 500  # per file; the others show once these are fixed
PointerParts = tuple[str | int, ...]


class UnknownField(Struct, frozen=True):
    """An unknown field: its number of occurrences, and the JSON pointer to the first."""

    times: int
    pointer: str


class _Nesting(Struct, frozen=True):
    """Where objects can be nested in a field: under its keys, in its items, or directly."""

    values: "tuple[_Nesting, ...]" = ()
    items: "tuple[_Nesting, ...]" = ()
    kind: type[Struct] | None = None


Path = tuple[str, ...]
ANY, ITEM = "*", "[]"


def unknown_fields(document: dict[str, Any], kind: type[Struct]) -> tuple[dict[str, UnknownField], int]:
    """Return the fields that `kind` lacks, by path, and the number of colons in their names and values.

    In a path, `*` stands for the name of a tensor or layer and `[]` for an index.

    >>> from ckaudit.contract.schema.checkpoint import Checkpoint
    >>> unknown_fields({"step": 1, "weights": {"a": {"mean": 0, "skew": 1}, "b": {"skew": {"x": 2}}}}, Checkpoint)
    ({'weights.*.skew': UnknownField(times=2, pointer='/weights/a/skew')}, 3)
    """
    counts: Counter[Path] = Counter()
    colons = _compare([document], kind, (), counts)
    unknown = {path: UnknownField(times, _first(document, path) or "") for path, times in counts.items()}
    return {".".join(path).replace(f".{ITEM}", ITEM): field for path, field in unknown.items()}, colons  # groups[].betas


def _compare(objects: list[dict[str, Any]], kind: type[Struct], path: Path, times: Counter[Path]) -> int:
    """Compare objects of one expected kind, whole key sets at a time, and return the number of colons in unknown parts.

    Args:
        objects: Objects at the same path, such as the statistics of all weights.
        kind: Their expected type.
        path: Their path.
        times: Counts unknown fields.
    """
    nestings = _nestings(kind)
    keys = set(chain.from_iterable(objects))
    hidden = 0
    for key in keys - nestings.keys():
        values = [item[key] for item in objects if key in item]
        times[*path, key] += len(values)
        hidden += len(values) * (1 + key.count(":")) + sum(map(count_colons, values))
    for key in keys & nestings.keys():
        if nestings[key]:
            values = [item[key] for item in objects if key in item]
            hidden += sum(_descend(values, nesting, (*path, key), times) for nesting in nestings[key])
    return hidden


def _descend(values: list[Any], nesting: _Nesting, path: Path, times: Counter[Path]) -> int:
    """Compare the objects nested in the values of one field."""
    if nesting.kind is not None:
        return _compare([value for value in values if isinstance(value, dict)], nesting.kind, path, times)
    if nesting.values:
        inner = [*chain.from_iterable(value.values() for value in values if isinstance(value, dict))]
        return sum(_descend(inner, value, (*path, ANY), times) for value in nesting.values)
    inner = [*chain.from_iterable(value for value in values if isinstance(value, list))]
    return sum(_descend(inner, item, (*path, ITEM), times) for item in nesting.items)


def _first(node: Any, path: Path) -> str | None:
    """Return the pointer to the first value at a path; None if `node` has none."""
    if not path:
        return ""
    head, rest = path[0], path[1:]
    if isinstance(node, list):
        steps: Any = enumerate(node) if head == ITEM else ()
    elif isinstance(node, dict):
        # The last part is the unknown key itself, even if it looks like a wildcard.
        steps = node.items() if head == ANY and rest else [(head, node[head])] if head in node else ()
    else:
        steps = ()
    pointers = ((key, _first(part, rest)) for key, part in steps)
    return next((f"/{escape(str(key))}{below}" for key, below in pointers if below is not None), None)


@cache
def _nestings(kind: type[Struct]) -> dict[str, tuple[_Nesting, ...]]:
    """Return where objects can be nested in each field."""
    return {name: tuple(_objects_inside(hint)) for name, hint in get_type_hints(kind).items()}


def _objects_inside(hint: Any) -> Iterator[_Nesting]:
    """Yield where objects can be nested in a type hint; nothing for numbers and text."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and not inner and issubclass(hint, Struct):
        yield _Nesting(kind=hint)
    elif origin is dict and (below := tuple(_objects_inside(inner[1]))):
        yield _Nesting(values=below)
    elif origin is list and (below := tuple(_objects_inside(inner[0]))):
        yield _Nesting(items=below)
    elif origin is Annotated:
        yield from _objects_inside(inner[0])
    elif origin in (Union, UnionType):
        for choice in inner:
            yield from _objects_inside(choice)


def unknown_findings(unknown: dict[str, UnknownField], file: str, version: str) -> list[Finding]:
    """Return one finding per unknown field, with its number of occurrences."""
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
    """Return one finding per repeated key of an object."""
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
    """Tell whether any object of a JSON text has a repeated key."""
    repeated = 0

    def count(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        unique = dict(members)
        repeated += len(members) - len(unique)
        return unique

    import json

    json.loads(text, object_pairs_hook=count)
    return repeated > 0


class UnknownWord(Struct, frozen=True):
    """A word that its field does not know.

    Attributes:
        place: Keys and indices that lead to the field.
        word: Its value.
        allowed: Its allowed values.
    """

    place: PointerParts
    word: str
    allowed: tuple[str, ...]


@cache
def with_open_words(kind: type[Struct]) -> type[Struct]:
    """Return a type that is read like `kind` but accepts any word where `kind` has a list of words.

    A single word, such as a version or an encoding, does not count as a list, because it determines how to read the rest. Words
    beside numbers, such as "NaN", do not count either.
    """
    hints = get_type_hints(kind, include_extras=True)
    changed = {name: _opened(hint) for name, hint in hints.items()}
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    fields: list[Any] = [
        (name, hint) if defaults[name] is msgspec.NODEFAULT else (name, hint, defaults[name])
        for name, hint in changed.items()
        if hint is not hints[name]
    ]
    return msgspec.defstruct(kind.__name__, fields, bases=(kind,), kw_only=True) if fields else kind


def _opened(hint: Any) -> Any:
    """Return a type hint with its lists of words opened; the same object if it has none."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and not inner and issubclass(hint, Struct):
        return with_open_words(hint)
    if origin is Literal:
        return str if len(inner) > 1 else hint
    if origin in (Union, UnionType) and float in map(_plain, inner):
        return hint
    if origin is Annotated:
        opened_hint = _opened(inner[0])
        return hint if opened_hint is inner[0] else Annotated[(opened_hint, *inner[1:])]
    opened_parts = tuple(map(_opened, inner))
    if all(map(is_, opened_parts, inner)):
        return hint
    return reduce(or_, opened_parts) if origin in (Union, UnionType) else origin[opened_parts]


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def unknown_words(document: Struct) -> Iterator[UnknownWord]:
    """Yield the unknown words of a document that was read with a `with_open_words` type."""
    yield from _of_struct(document, ())


def _of_struct(value: Struct, place: PointerParts) -> Iterator[UnknownWord]:
    for name, hint in _fields_with_words(type(value)):
        part = getattr(value, name)
        if part is not UNSET and part is not None:
            yield from _of_value(part, hint, (*place, name))


def _of_value(value: Any, hint: Any, place: PointerParts) -> Iterator[UnknownWord]:
    if isinstance(value, Struct):
        yield from _of_struct(value, place)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _of_value(part, hint, (*place, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _of_value(part, hint, (*place, index))
    elif isinstance(value, str) and hint and value not in hint:
        yield UnknownWord(place, value, hint)


@cache
def _fields_with_words(kind: type[Struct]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the fields of a type that can hold words of a list, each with the list; it is empty for nested ones."""
    base = kind.__mro__[1]
    original = base if base is not Struct and with_open_words(base) is kind else kind
    hints = get_type_hints(original, include_extras=True)
    return tuple((name, words) for name, hint in hints.items() if (words := _words(hint)) is not None)


def _words(hint: Any) -> tuple[str, ...] | None:
    """Return the words that a field can hold; empty if only nested objects hold some, None if nothing does."""
    if _opened(hint) is hint:
        return None
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return inner
    if isinstance(hint, type) and not inner:
        return ()
    return next((words for part in inner if not isinstance(part, str) and (words := _words(part)) is not None), None)


def word_finding(unknown: UnknownWord, file: str) -> Finding:
    """Return the finding on an unknown word."""
    from ckaudit.contract.explain import shorten

    pointer, expected = pointer_of(iter(unknown.place)), " or ".join(f'"{word}"' for word in sorted(unknown.allowed))
    found = shorten(msgspec.json.encode(unknown.word).decode())
    message = f"{pointer} is {found}, not {expected}"
    return violations.UNKNOWN_WORD.at(file, message, pointer=pointer, expected=expected, found=found)


def remove_unknown_words(document: Struct, words: Iterable[UnknownWord]) -> None:
    """Remove unknown words from a document, so that they count as not recorded."""
    for word in words:
        *way, last = word.place
        parent: Any = document
        for part in way:
            parent = getattr(parent, str(part)) if isinstance(parent, Struct) else parent[part]
        if isinstance(parent, Struct):
            setattr(parent, str(last), UNSET)
        elif isinstance(parent, dict):
            parent.pop(last)
