"""The report on a screen: `validate` as a list of places, everything else as a diagnosis with charts."""

from ckaudit.contract.schema.report import Report
from ckaudit.reports.view import PLAIN, View


def render(report: Report, view: View = PLAIN) -> str:
    """Return `report` as text for a terminal, a pipe or a file."""
    if report.command == "validate":
        from ckaudit.reports.terminal.violations import draw
    else:
        from ckaudit.reports.terminal.verdict import draw
    return draw(report, view)
