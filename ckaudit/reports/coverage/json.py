"""Coverage as JSON: every entry of the catalogue, and how many of each level were recorded."""

from typing import Any

import msgspec

from ckaudit.audit.coverage import Coverage
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.json import dumps
from ckaudit.reports.view import View


def render(found: Coverage, view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return the whole, with the counts by level."""
    whole: dict[str, Any] = msgspec.to_builtins(found)
    counts = {
        level: {"recorded": len(found.of(level)) - len(found.missing(level)), "of": len(found.of(level))} for level in RANKS
    }
    rows = whole.pop("rows")
    return dumps({**whole, "counts": counts, "rows": rows})
