"""`ckaudit triage --event`: from the words of the command line to the autopsy on the screen."""

from pathlib import Path
from typing import TYPE_CHECKING

from ckaudit.cli.options import SEVERITIES
from ckaudit.cli.options import step as step_of
from ckaudit.cli.progress import progress

if TYPE_CHECKING:
    from ckaudit.cli.deliver import Request
    from ckaudit.policy.gate import Gate

LAST = "last"


def autopsy(run: str, event: str, request: "Request", gate: "Gate") -> int:
    """Show what happened before an event, and return the exit code: 1 for grave findings of triage in its steps."""
    asked = None if event == LAST else step_of(event, "--event")
    from ckaudit.audit.autopsy import autopsy as open_box
    from ckaudit.cli.deliver import put_out
    from ckaudit.reports import render

    with progress("reading") as tick:
        found = open_box(Path(run), event=asked, gate=gate, progress=tick)
    put_out(lambda view: render(found, request.format, view), request)
    grave = SEVERITIES[: SEVERITIES.index(request.fail_on or "sev1") + 1]
    return int(any(finding.severity in grave for finding in found.findings))
