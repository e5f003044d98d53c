"""`ckaudit validate`: is this data what it claims to be?"""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli.options import AllowEmpty, FailOn, Format, Output, Unit, Verbose, base, units
from ckaudit.cli.output import progress
from ckaudit.cli.policy_options import BaselineFile, Config, NoConfig, Update

EPILOG = """
\b
Examples:
  ckaudit validate runs/nano
  ckaudit validate --strict --format github runs/nano
  ckaudit validate -f sarif -o ckaudit.sarif runs/nano
  ckaudit validate --baseline known.json --update-baseline runs/nano
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
    format: Format = "",  # noqa: A002  what the option is called
    strict: Strict = False,
    output: Output = "",
    fail_on: FailOn = "",
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    update_baseline: Update = False,
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    unit: Unit = None,
) -> int:
    """Check that checkpoints, scalars and run.json follow the contract."""
    from ckaudit.cli.deliver import OutputRequest, deliver
    from ckaudit.cli.policy_options import failing_severity, read_acceptance, write_baseline

    criteria = read_acceptance("validate", config=config, no_config=no_config, baseline=baseline, update=update_baseline)
    fails_from = failing_severity(fail_on, criteria)
    if strict and fails_from != "note":
        fails_from = "sev2"
    request = OutputRequest(
        format=format, output=output, fail_on=fails_from, allow_empty=allow_empty, verbose=verbose, quiet=quiet, base=base(paths)
    )
    from ckaudit.validate import validate

    with progress("validating", quiet=quiet) as tick:
        report = validate([Path(path) for path in paths], criteria=criteria, progress=tick, units=units(unit or []))
    write_baseline(report, criteria)
    return deliver(report, request)
