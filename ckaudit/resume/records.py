"""The plain records that a pickle becomes, and the walk over them."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

FEW = 64  # elements of a list that are looked at even where they are plain numbers


class BadPickle(Exception):  # noqa: N818  never seen by a user: it becomes a finding
    """Bytes that are no pickle, or one that ends in the middle."""


class Name(Struct, frozen=True, eq=False):
    """Something that unpickling would import: a class or a function."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Call(Struct, eq=False):
    """Something that unpickling would make: `maker` called with `given`, and then the state that is set on it.

    Attributes:
        maker: What would be called; None: bytes that are no name.
        given: The arguments.
        state: What is set on the object afterwards.
        by_class: Whether only an empty object of a class is made, by its `__new__`.
        items: Pairs and elements that are added afterwards.
    """

    maker: Any
    given: Any
    state: Any = None
    by_class: bool = False
    items: list[tuple[Any, Any]] | None = None

    @property
    def made_by(self) -> str:
        """The full name of what would make it; empty where that is no name."""
        return str(self.maker) if isinstance(self.maker, Name) else ""


class Stored(Struct, frozen=True, eq=False):
    """A persistent identity: what stands elsewhere, such as the bytes of a tensor."""

    identity: Any


class Pairs(Struct, eq=False):
    """A dictionary as the pairs it was made of: a hostile key is never hashed."""

    items: list[tuple[Any, Any]]

    def get(self, key: str) -> Any:
        """Return the last value of a key that is text; None where there is none."""
        return next((value for own, value in reversed(self.items) if isinstance(own, str) and own == key), None)

    def names(self) -> list[str]:
        """Return the keys that are text."""
        return [key for key, _ in self.items if isinstance(key, str)]


class PickleFacts(Struct, frozen=True):
    """What a pickle says.

    Attributes:
        value: The object, as plain records.
        names: Everything that would be imported, by its full name, each once.
        called: The names among them that would be called, not only made empty by their class.
    """

    value: Any
    names: tuple[str, ...]
    called: frozenset[str]


def parts(value: Any, *, max_depth: int = 64) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every part of what a pickle says with the way to it, each container once, none deeper than `max_depth`.

    Names of keys make the way, numbers of elements too. What a call was given for it to wrap, and its state, stand where the
    call does.
    """
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        way, part = waiting.pop()
        if isinstance(part, (list, tuple, Pairs, Call)):
            if id(part) in seen or len(way) > max_depth:
                continue
            seen.add(id(part))
        yield way, part
        waiting += reversed(list(_below(way, part)))


def _below(way: tuple[str, ...], part: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(part, Pairs):
        yield from (((*way, _word(key)), value) for key, value in part.items)
    elif isinstance(part, (list, tuple)):
        few = len(part) <= FEW
        yield from (((*way, str(index)), value) for index, value in enumerate(part) if few or _holds_more(value))
    elif isinstance(part, Call):
        given = part.given if isinstance(part.given, tuple) else (part.given,)
        yield from ((way if isinstance(each, Call) else (*way, str(index)), each) for index, each in enumerate(given))
        if part.state is not None:
            yield way, part.state
        for key, value in part.items or ():
            yield (*way, _word(key)), value


def _holds_more(value: Any) -> bool:
    """Tell whether a part has parts of its own: of long lists of numbers nobody asks for the single one."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0
    return len(value.items) > 0 if isinstance(value, Pairs) else isinstance(value, (Call, Stored))


def _word(key: Any) -> str:
    """Return a key as a word of a way; one that is neither text nor a number of common size is a question mark."""
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, int) and -(2**63) <= key < 2**63 else "?"
