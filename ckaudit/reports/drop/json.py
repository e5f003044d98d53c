"""Why a benchmark fell, as JSON: every gate with all of its evidence, and the whole guide."""

import msgspec

from ckaudit import __version__
from ckaudit.audit.drop import Drop
from ckaudit.reports.json import dumps
from ckaudit.reports.view import View

VERSION = "ck.benchmark_drop.v1"


def render(drop: Drop, view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return the whole."""
    return dumps({"schema_version": VERSION, "tool": f"ckaudit {__version__}", **msgspec.to_builtins(drop)})
