"""JSON: the document itself, for other programs."""

from typing import Any

import msgspec

from ckaudit import __version__
from ckaudit.reports.escape import UNSAFE, visible
from ckaudit.reports.view import PLAIN, View

VERSIONS = {"Autopsy": "ck.autopsy.v1", "Drop": "ck.benchmark_drop.v1", "DrillReport": "ck.drill.v1"}


def render(document: msgspec.Struct, view: View = PLAIN) -> str:  # noqa: ARG001  programs get everything
    """Return a document as indented JSON, adding its schema if it does not name it; equal documents give equal bytes."""
    version = VERSIONS.get(type(document).__name__)
    return dumps(document if version is None else with_head(version, msgspec.to_builtins(document)))


def with_head(version: str, members: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a document, preceded by its schema and the program that wrote it."""
    return {"schema_version": version, "tool": f"ckaudit {__version__}", **members}


def dumps(value: Any) -> str:
    r"""Return `value` as indented JSON that is safe on a terminal.

    Controls and direction marks occur only inside strings, so they are written as JSON's `\uNNNN` and read back unchanged. Half a
    surrogate pair has no JSON form that every reader accepts: it becomes visible text.
    """
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value)))
    indented = msgspec.json.format(encoded, indent=2).decode()
    return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", indented) + "\n"


def _without_surrogates(value: Any) -> Any:
    """Return nested builtins with each half of a surrogate pair written out, keys included."""
    match value:
        case str():
            return "".join(visible(letter) if "\ud800" <= letter <= "\udfff" else letter for letter in value)
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list():
            return [_without_surrogates(item) for item in value]
    return value
