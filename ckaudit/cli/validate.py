"""`ckaudit validate`: is this data what it claims to be?"""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli.options import AllowEmpty, FailOn, Format, Output, Verbose, base, severity
from ckaudit.cli.progress import progress

EPILOG = """
\b
Examples:
  ckaudit validate runs/nano
  ckaudit validate --strict --format github runs/nano
  ckaudit validate -f sarif -o ckaudit.sarif runs/nano
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing to judge
"""

Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Run folders or checkpoint files.", show_default=False)]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on sev2 too: unknown fields, gaps in the cadence, misnamed files.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only: no summary, no progress.")]


def command(
    paths: Paths,
    *,
    format: Format = "terminal",  # noqa: A002  what the option is called
    strict: Strict = False,
    output: Output = "",
    fail_on: FailOn = "sev1",
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Check that checkpoints, scalars and run.json keep the contract."""
    limit = severity(fail_on)
    if strict and limit != "note":
        limit = "sev2"
    from ckaudit.cli.deliver import Request, deliver

    request = Request(
        format=format, output=output, fail_on=limit, allow_empty=allow_empty, verbose=verbose, quiet=quiet, base=base(paths)
    )
    from ckaudit.validate import validate

    with progress("validating", quiet=quiet) as tick:
        report = validate([Path(path) for path in paths], progress=tick)
    return deliver(report, request)
