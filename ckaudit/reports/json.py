"""JSON: the report itself, `ck.report.v1`, as other programs read it."""

from typing import Any

import msgspec

from ckaudit.contract.report import Report
from ckaudit.reports.escape import UNSAFE, visible
from ckaudit.reports.view import PLAIN, View


def render(report: Report, view: View = PLAIN) -> str:  # noqa: ARG001  a program gets everything
    """Return `report` as indented JSON; equal reports give equal bytes."""
    return dumps(report)


def dumps(value: Any) -> str:
    r"""Return `value` as indented JSON that is safe on a terminal.

    Controls and direction marks can only stand inside strings, so they are written as JSON's own `\uNNNN` and read back
    unchanged. Half a surrogate pair has no JSON that every reader takes: it becomes visible text.
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
