"""Columns of a record: which column holds what, by its usual name or as the user says, and how to read its value."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from ckaudit.errors import UsageError

Units = tuple[str, ...] | tuple[int, ...]


class Columns(Struct, frozen=True):
    """The column names to look for.

    Attributes:
        names: For each meaning, such as "text", the columns that may hold it, the likeliest first. A dot leads to a nested
            object: "meta.source".
    """

    names: Mapping[str, tuple[str, ...]]

    def mapped(self, chosen: Mapping[str, str]) -> "Columns":
        """Return the columns with the user's choices in place.

        Raises:
            UsageError: If a meaning is unknown.
        """
        for meaning in chosen:
            if meaning not in self.names:
                near = get_close_matches(meaning, self.names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(self.names)}"
                raise UsageError(f"--map: no column can mean {meaning!r}", hint=hint)
        return Columns({**self.names, **{meaning: (column,) for meaning, column in chosen.items()}})

    def pick(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a record by their meanings; absent and null ones are left out.

        >>> Columns({"text": ("text", "content"), "source": ("meta.source",)}).pick({"content": "a", "meta": {"source": "web"}})
        {'text': 'a', 'source': 'web'}
        """
        picked = {}
        for meaning, candidates in self.names.items():
            for column in candidates:
                value = record[column] if column in record else _nested(record, column)
                if value is not None:
                    picked[meaning] = value
                    break
        return picked

    def wanted(self, columns: Iterable[str]) -> list[str]:
        """Return which of the existing columns have to be read."""
        heads = {column.partition(".")[0] for names in self.names.values() for column in names}
        heads |= {column for names in self.names.values() for column in names}
        return [column for column in columns if column in heads]


def has_column(record: Mapping[str, Any], column: str) -> bool:
    """Tell whether a record has a column, null or not; a dot leads to a nested object.

    >>> has_column({"meta": {"source": None}}, "meta.source"), has_column({"meta": "web"}, "meta.source")
    (True, False)
    """
    value: Any = record
    for part in (column,) if column in record else column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _nested(record: Mapping[str, Any], column: str) -> Any:
    value: Any = record
    for part in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


class WrongValue(Exception):  # noqa: N818  never seen by a user: it becomes a finding
    """A value that does not fit the meaning of its column."""


def probability(value: Any, what: str) -> float:
    """Return a score.

    Raises:
        WrongValue: If it is not a number from 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongValue(f"{what} is {str(value)[:40]}, not a probability of 0 to 1")
    return float(value)


def text_of(value: Any, what: str) -> str:
    """Return a text, given directly or as the member `text` of an object.

    Raises:
        WrongValue: If there is none.
    """
    if isinstance(value, Mapping):
        value = value.get("text")
    if not isinstance(value, str):
        raise WrongValue(f"{what} is a {type(value).__name__}, not a text")
    return value


def units_of(value: Any, what: str) -> Units:
    """Return the tokens of a list, or the words of a text.

    Raises:
        WrongValue: If it is neither.
    """
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return tuple(value)
    raise WrongValue(f"{what} is neither a text nor a list of token numbers")


def count_of(value: Any, what: str) -> int:
    """Return a count.

    Raises:
        WrongValue: If it is not a whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongValue(f"{what} is {str(value)[:40]}, not a count")
    return value
