"""What a screen can do, and the few colours that are used on it."""

import shutil
from collections.abc import Mapping
from typing import TextIO

from ckaudit.contract.schema.report import Report
from ckaudit.reports.escape import visible
from ckaudit.reports.view import View
from ckaudit.reports.words import is_limited

# Only the sixteen colours that every terminal's theme defines (ECMA-48, select graphic rendition).
COLOURS = {"sev0": "1;37;41", "sev1": "1;31", "sev2": "33", "note": "36", "ok": "32", "bold": "1", "dim": "2"}


def screen(view: View, stream: TextIO, environ: Mapping[str, str]) -> View:
    """Return `view` with the width, colours and characters of `stream`.

    `NO_COLOR` (no-color.org) beats `FORCE_COLOR` (force-color.org); both count when set and not empty.
    """
    terminal = stream.isatty()
    colour = (terminal and environ.get("TERM") != "dumb") or bool(environ.get("FORCE_COLOR"))
    encoding = (stream.encoding or "").lower().replace("-", "").replace("_", "")
    return view._replace(
        width=_width(terminal, environ), colour=colour and not environ.get("NO_COLOR"), unicode=encoding == "utf8"
    )


def _width(terminal: bool, environ: Mapping[str, str]) -> int | None:
    """Return the columns that `COLUMNS` or the terminal says, or None in a pipe."""
    if environ.get("COLUMNS", "").isdecimal() and int(environ["COLUMNS"]) > 0:
        return int(environ["COLUMNS"])
    return shutil.get_terminal_size().columns if terminal else None


def paint(text: str, colour: str, view: View) -> str:
    """Return `text` in one of `COLOURS`, or as it is where colours are not wanted."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if view.colour and text else text


def shown(text: str, view: View) -> str:
    """Return `text` with everything unsafe, and on an ASCII screen everything foreign, written as numbers."""
    return visible(text, ascii_only=not view.unicode)


def badge(report: Report) -> tuple[str, str]:
    """Return the word that sums a report up, and its colour; a report that judged nothing is never OK."""
    if report.severity and report.severity != "note":
        return report.severity.upper(), report.severity
    if any(check.outcome == "error" for check in report.checks):
        return "BROKEN", "sev1"
    if not any(check.outcome in ("passed", "failed") for check in report.checks):
        return ("NOTE", "note") if report.severity else ("NOT JUDGED", "sev2")
    if is_limited(report):
        return "LIMITED", "sev2"
    return ("NOTE", "note") if report.severity else ("OK", "ok")
