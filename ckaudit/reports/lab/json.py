"""A score as JSON: everything, run by run."""

import msgspec

from ckaudit.lab.score.scoreboard import Score
from ckaudit.reports.json import dumps
from ckaudit.reports.view import View


def render(score: Score, view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return the whole."""
    return dumps(msgspec.to_builtins(score))
