"""`ckaudit triage --benchmark-drop`: from the words of the command line to four gates on the screen."""

from pathlib import Path
from typing import TYPE_CHECKING

from ckaudit.cli.options import SEVERITIES
from ckaudit.cli.progress import progress
from ckaudit.cli.say import say

if TYPE_CHECKING:
    from ckaudit.audit.drop import Drop
    from ckaudit.cli.deliver import Request
    from ckaudit.contract.schema.import_options import Choice
    from ckaudit.policy.gate import Gate

SEVERITY = "sev1"  # what a failed gate counts as: contain it quickly


def benchmark_drop(run: str, request: "Request", gate: "Gate", *, since: int | None, choice: "Choice") -> int:
    """Show why a benchmark fell, and return the exit code."""
    from ckaudit.audit.drop import benchmark_drop as ask
    from ckaudit.cli.deliver import put_out
    from ckaudit.reports import render

    with progress("reading") as tick:
        drop = ask(Path(run), since=since, choice=choice, gate=gate, progress=tick)
    put_out(lambda view: render(drop, request.format, view), request)
    return _exit_code(drop, request)


def _exit_code(drop: "Drop", request: "Request") -> int:
    """Return 1 for a gate that failed, 2 where none could be judged, else 0."""
    outcomes = {gate.outcome for gate in drop.gates}
    if "failed" in outcomes:
        return int(SEVERITIES.index(SEVERITY) <= SEVERITIES.index(request.fail_on or SEVERITY))
    if drop.gates and "passed" not in outcomes and not request.allow_empty:
        say("error: no gate could be judged")
        say("hint: --allow-empty accepts a report that judged nothing")
        return 2
    return 0
