"""Coverage as JSON: every entry of the catalogue, and how many of each level were recorded."""

from typing import Any

import msgspec

from ckaudit.audit.coverage.table import Coverage
from ckaudit.metrics.catalogue import RANKS, Importance
from ckaudit.reports.json import dumps, with_head
from ckaudit.reports.view import View

VERSION = "ck.coverage.v1"


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries of one level the run has.

    Attributes:
        recorded: Those recorded.
        of: All that make sense for the run.
    """

    recorded: int
    of: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries the run has, by how much it needs them.

    Attributes:
        must: What the run cannot do without.
        should: What it ought to have.
        nice: What is good to have.
    """

    must: Counted
    should: Counted
    nice: Counted


def render(coverage: Coverage, view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return the whole, with the counts by level."""
    whole: dict[str, Any] = msgspec.to_builtins(coverage)
    counts = Counts(**{level: _counted(coverage, level) for level in RANKS})
    rows = whole.pop("rows")
    return dumps(with_head(VERSION, {**whole, "counts": counts, "rows": rows}))


def _counted(coverage: Coverage, level: Importance) -> Counted:
    return Counted(recorded=len(coverage.of(level)) - len(coverage.missing(level)), of=len(coverage.of(level)))
