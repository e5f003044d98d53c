"""Fields that hold one of a list of words: which word is none of the list, and types that read it all the same.

A word that this version does not know, such as a trigger of somebody's own, makes no number wrong: the document is read,
the word counts as none of the list, and it is named.
"""

from collections.abc import Iterable, Iterator
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from ckaudit.contract import violations
from ckaudit.contract.io.json_locations import pointer_of
from ckaudit.contract.schema.report import Finding

MAX_LISTED = 500  # of one file; whoever mends these sees the others
Place = tuple[str | int, ...]


class UnknownWord(Struct, frozen=True):
    """A word that its field does not know.

    Attributes:
        place: The field, as the keys and indices that lead to it.
        word: What it holds.
        known: What it may hold.
    """

    place: Place
    word: str
    known: tuple[str, ...]


@cache
def opened(kind: type[Struct]) -> type[Struct]:
    """Return a type that is read like `kind`, and takes any word where `kind` has a list of words.

    A single word, such as a version or an encoding, is no list: it says how the rest is to be read. Words beside numbers,
    such as "NaN", are none either.
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
    """Return a type hint with lists of words opened; the same object where there is none inside."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and not inner and issubclass(hint, Struct):
        return opened(hint)
    if origin is Literal:
        return str if len(inner) > 1 else hint
    if origin in (Union, UnionType) and float in map(_plain, inner):
        return hint
    if origin is Annotated:
        made = _opened(inner[0])
        return hint if made is inner[0] else Annotated[(made, *inner[1:])]
    made_all = tuple(map(_opened, inner))
    if all(map(_is_same, made_all, inner)):
        return hint
    return reduce(or_, made_all) if origin in (Union, UnionType) else origin[made_all]


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def unknown_words(document: Struct) -> Iterator[UnknownWord]:
    """Yield the words of a document, read by an `opened` type, that their fields do not know."""
    yield from _of_struct(document, ())


def _of_struct(value: Struct, place: Place) -> Iterator[UnknownWord]:
    for name, hint in _places(type(value)):
        part = getattr(value, name)
        if part is not UNSET and part is not None:
            yield from _of_value(part, hint, (*place, name))


def _of_value(value: Any, hint: Any, place: Place) -> Iterator[UnknownWord]:
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
def _places(kind: type[Struct]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the fields of a type in which words of a list can stand, each with the list; empty: deeper inside."""
    base = kind.__mro__[1]
    original = base if base is not Struct and opened(base) is kind else kind
    found = get_type_hints(original, include_extras=True)
    return tuple((name, words) for name, hint in found.items() if (words := _words(hint)) is not None)


def _words(hint: Any) -> tuple[str, ...] | None:
    """Return the words that a field can hold; empty where only objects inside it hold some, None where nothing does."""
    if _opened(hint) is hint:
        return None
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return inner
    if isinstance(hint, type) and not inner:
        return ()
    return next((words for part in inner if not isinstance(part, str) and (words := _words(part)) is not None), None)


def word_finding(unknown: UnknownWord, file: str) -> Finding:
    """Return the finding that names a word."""
    from ckaudit.contract.explain import shorten

    pointer, expected = pointer_of(iter(unknown.place)), " or ".join(f'"{word}"' for word in sorted(unknown.known))
    found = shorten(msgspec.json.encode(unknown.word).decode())
    message = f"{pointer} is {found}, not {expected}"
    return violations.UNKNOWN_WORD.at(file, message, pointer=pointer, expected=expected, found=found)


def forget(document: Struct, words: Iterable[UnknownWord]) -> None:
    """Take words that their fields do not know out of a document: what is not known is not recorded."""
    for word in words:
        *way, last = word.place
        parent: Any = document
        for part in way:
            parent = getattr(parent, str(part)) if isinstance(parent, Struct) else parent[part]
        if isinstance(parent, Struct):
            setattr(parent, str(last), UNSET)
        elif isinstance(parent, dict):
            parent.pop(last)
