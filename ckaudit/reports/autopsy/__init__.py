"""The autopsy of an event: one module per format, loaded only when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.audit.autopsy import Autopsy

FORMATS: dict[str, str] = {
    "terminal": "ckaudit.reports.autopsy.terminal",
    "json": "ckaudit.reports.autopsy.json",
    "markdown": "ckaudit.reports.autopsy.markdown",
}


def render(autopsy: "Autopsy", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return `autopsy` drawn in one of `FORMATS`, ending in a newline."""
    text: str = import_module(FORMATS[format]).render(autopsy, view)
    return text
