"""`ckaudit gate`: is a canary as good as the runs that are known to be good?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ckaudit.cli import options
from ckaudit.cli.comparison_options import AXES, Align, exit_code, requested
from ckaudit.cli.options import Map, Output, Require, Verbose, checked_choice, file_format_option
from ckaudit.cli.output import progress
from ckaudit.cli.policy_options import Config, NoConfig
from ckaudit.errors import UsageError
from ckaudit.reports import FORMATS, render

if TYPE_CHECKING:
    from ckaudit.contract.schema.diff import Axis

EPILOG = """
\b
Examples:
  ckaudit gate runs/canary --against good/1 --against good/2
  ckaudit gate runs/canary --against good/1 -f github
\b
With two or more good runs, noise is their spread; with one, its own scatter.
[gate] in ckaudit.toml sets which questions count, and how much worse the
canary may be: docs/gate.md.
\b
Exit codes:
  0  passed
  1  failed
  2  incomparable, or unreadable; or --require vital and a vital check
     of the canary could not judge
"""

Canary = Annotated[str, typer.Argument(metavar="CANARY", help="The run to judge.", show_default=False)]
Against = Annotated[
    list[str] | None, typer.Option("--against", metavar="GOOD", help="A known good run; may be repeated.", show_default=False)
]
More = Annotated[
    list[str] | None, typer.Argument(metavar="[GOOD ...]", help="Further good runs, after --against.", show_default=False)
]
Format = Annotated[str, file_format_option(FORMATS)]


def command(
    canary: Canary,
    more: More = None,
    *,
    against: Against = None,
    align: Align = "step",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    require: Require = "",
    config: Config = "",
    no_config: NoConfig = False,
    verbose: Verbose = False,
    map: Map = None,  # noqa: A002  what the option is called
) -> int:
    """Compare a canary with good runs: pass, fail, or incomparable."""
    from ckaudit.cli.deliver import write_output
    from ckaudit.cli.policy_options import read_acceptance

    request = requested(format, output, verbose=verbose, base=options.base([canary]))
    checked_choice(align, AXES, "axis")
    vital = checked_choice(require, ("vital",), "requirement") if require else ""
    if not against:
        raise UsageError("there is no good run to hold it against", hint=f"ckaudit gate {canary} --against GOOD")
    good = [Path(name) for name in dict.fromkeys([*against, *(more or [])])]
    criteria = read_acceptance("gate", config=config, no_config=no_config, baseline="", update=False)
    from ckaudit.diff.compare import compare_canary
    from ckaudit.diff.gate import gated_under

    import_options = options.import_options(map, "", config=config, no_config=no_config)
    with progress("reading") as tick:
        comparisons = compare_canary(
            Path(canary), good, axis=cast("Axis", align), import_options=import_options, progress=tick, criteria=criteria
        )
    comparison = gated_under(comparisons, criteria.policy, require_vital=bool(vital))
    if request.format == "sarif":  # like triage: at the line where the runs part
        from msgspec.structs import replace

        from ckaudit.audit.evidence_files import evidence_files
        from ckaudit.reports.diff.report import report_of

        request = replace(request, places=evidence_files(Path(canary), report_of(comparison).findings))
    write_output(lambda view: render(comparison, request.format, view), request)
    return exit_code(comparison, "worse")
