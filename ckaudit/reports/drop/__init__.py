"""Why a benchmark fell, gate by gate: one module per format, loaded only when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.audit.drop import Drop

FORMATS: dict[str, str] = {
    "terminal": "ckaudit.reports.drop.terminal",
    "json": "ckaudit.reports.drop.json",
    "markdown": "ckaudit.reports.drop.markdown",
}


def render(drop: "Drop", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return `drop` drawn in one of `FORMATS`, ending in a newline."""
    text: str = import_module(FORMATS[format]).render(drop, view)
    return text
