"""Drawings of a `Report`: one module per format, loaded only when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.contract.report import Report

FORMATS: dict[str, str] = {
    "terminal": "ckaudit.reports.terminal",
    "json": "ckaudit.reports.json",
    "sarif": "ckaudit.reports.sarif",
    "junit": "ckaudit.reports.junit",
    "github": "ckaudit.reports.github",
    "markdown": "ckaudit.reports.markdown",
}


def render(report: "Report", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return `report` drawn in one of `FORMATS`, ending in a newline unless there is nothing to say."""
    text: str = import_module(FORMATS[format]).render(report, view)
    return text
