"""A comparison as JSON: `ck.diff.v1`, as other programs read it."""

from ckaudit.contract.diff import Comparison
from ckaudit.reports.json import dumps
from ckaudit.reports.view import PLAIN, View


def render(comparison: Comparison, view: View = PLAIN) -> str:  # noqa: ARG001  a program gets everything
    """Return `comparison` as indented JSON; equal comparisons give equal bytes."""
    return dumps(comparison)
