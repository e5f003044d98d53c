"""A comparison drawn: one module per format, loaded only when asked for; what shows findings is given a report."""

from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.contract.diff import Comparison

OWN: dict[str, str] = {
    "terminal": "ckaudit.reports.diff.terminal",
    "json": "ckaudit.reports.diff.json",
    "markdown": "ckaudit.reports.diff.markdown",
}
AS_REPORT = ("sarif", "junit", "github")
FORMATS: tuple[str, ...] = (*OWN, *AS_REPORT)


def render(comparison: "Comparison", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return `comparison` drawn in one of `FORMATS`, ending in a newline."""
    if format in OWN:
        text: str = import_module(OWN[format]).render(comparison, view)
        return text
    from ckaudit import reports
    from ckaudit.reports.diff.report import report_of

    return reports.render(report_of(comparison), format, view)
