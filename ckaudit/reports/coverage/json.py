"""Coverage as JSON: every entry of the catalogue, and how many of each level were recorded."""

from typing import Any

import msgspec

from ckaudit import __version__
from ckaudit.audit.coverage import Coverage
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.json import dumps
from ckaudit.reports.view import View

VERSION = "ck.coverage.v1"


def render(found: Coverage, view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return the whole, with the counts by level."""
    whole: dict[str, Any] = msgspec.to_builtins(found)
    counts = {
        level: {"recorded": len(found.of(level)) - len(found.missing(level)), "of": len(found.of(level))} for level in RANKS
    }
    rows = whole.pop("rows")
    return dumps({"schema_version": VERSION, "tool": f"ckaudit {__version__}", **whole, "counts": counts, "rows": rows})
