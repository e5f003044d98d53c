"""What a run recorded of the catalogue: one module per format, loaded only when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.audit.coverage_table import Coverage

FORMATS: dict[str, str] = {
    "terminal": "ckaudit.reports.coverage.terminal",
    "json": "ckaudit.reports.coverage.json",
    "markdown": "ckaudit.reports.coverage.markdown",
}


def render(coverage: "Coverage", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return `coverage` drawn in one of `FORMATS`, ending in a newline."""
    text: str = import_module(FORMATS[format]).render(coverage, view)
    return text
