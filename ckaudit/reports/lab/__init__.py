"""The lab's catalogue and its score: one module per format, loaded only when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from ckaudit.reports.view import PLAIN, View

if TYPE_CHECKING:
    from ckaudit.lab.score.scoreboard import Score

FORMATS: dict[str, str] = {
    "terminal": "ckaudit.reports.lab.terminal",
    "json": "ckaudit.reports.lab.json",
    "markdown": "ckaudit.reports.lab.markdown",
}


def render(score: "Score", format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return a score drawn in one of `FORMATS`, ending in a newline."""
    text: str = import_module(FORMATS[format]).render(score, view)
    return text
