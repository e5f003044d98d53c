"""Pages of `explain` and the list of all names: one module per format, loaded only when asked for."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.explain.page import Group, Page

FORMATS: dict[str, str] = {
    "terminal": "ckaudit.reports.explain.terminal",
    "json": "ckaudit.reports.explain.json",
    "markdown": "ckaudit.reports.explain.markdown",
}


def render_pages(pages: "Sequence[Page]", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return pages drawn in one of `FORMATS`, ending in a newline."""
    text: str = import_module(FORMATS[format]).pages(pages, view)
    return text


def render_groups(groups: "Sequence[Group]", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return the list of all names drawn in one of `FORMATS`, ending in a newline."""
    text: str = import_module(FORMATS[format]).groups(groups, view)
    return text
