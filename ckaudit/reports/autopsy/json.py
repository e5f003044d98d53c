"""The autopsy of an event as JSON: the whole, timeline and findings included."""

import msgspec

from ckaudit import __version__
from ckaudit.audit.autopsy import Autopsy
from ckaudit.reports.json import dumps
from ckaudit.reports.view import View

VERSION = "ck.autopsy.v1"


def render(autopsy: Autopsy, view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return the whole."""
    return dumps({"schema_version": VERSION, "tool": f"ckaudit {__version__}", **msgspec.to_builtins(autopsy)})
