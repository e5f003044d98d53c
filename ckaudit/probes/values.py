"""Reading the columns of generations: texts, tokens and scores, each checked where it is used."""

from collections.abc import Mapping
from typing import Any

Units = tuple[str, ...] | tuple[int, ...]


class Wrong(Exception):  # noqa: N818  never seen by a user: it becomes a finding
    """A value that is not what its column means."""


def probability(value: Any, what: str) -> float:
    """Return a score.

    Raises:
        Wrong: Where it is no number of 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Wrong(f"{what} is {str(value)[:40]}, not a probability of 0 to 1")
    return float(value)


def text_of(value: Any, what: str) -> str:
    """Return a text, given alone or as the member `text` of an object.

    Raises:
        Wrong: Where there is none.
    """
    if isinstance(value, Mapping):
        value = value.get("text")
    if not isinstance(value, str):
        raise Wrong(f"{what} is a {type(value).__name__}, not a text")
    return value


def units_of(value: Any, what: str) -> Units:
    """Return the tokens of a list, or the words of a text.

    Raises:
        Wrong: Where it is neither.
    """
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        return tuple(value)
    raise Wrong(f"{what} is neither a text nor a list of token numbers")


def count_of(value: Any, what: str) -> int:
    """Return a count.

    Raises:
        Wrong: Where it is no whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Wrong(f"{what} is {str(value)[:40]}, not a count")
    return value
