"""Shared code of `data` and `probe`: their options, and the output of measured values to the reader and into a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.options import SEVERITIES, file_format_option, severity
from ckaudit.cli.output import say
from ckaudit.errors import UsageError
from ckaudit.reports import FEW_FORMATS
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.cli.deliver import OutputRequest
    from ckaudit.contract.schema.raw_measurements import Measures


Format = Annotated[str, file_format_option(FEW_FORMATS)]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="MEANING=COLUMN",
        help="Read MEANING from COLUMN, as in text=body or source=meta.source; may be repeated.",
        show_default=False,
    ),
]
Classifier = Annotated[
    str,
    typer.Option(
        "--classifier",
        metavar="MODULE:FUNCTION",
        help="Score texts that have no score: a function from a list of texts to a list of numbers, 0 to 1.",
        show_default=False,
    ),
]
Into = Annotated[
    str, typer.Option("--into", metavar="RUN", help="Add the results to the scalars of this run folder.", show_default=False)
]
Step = Annotated[
    str,
    typer.Option(
        "--step", metavar="N", help="With --into: the training step of the results. Default: the last.", show_default=False
    ),
]


def paths(names: Sequence[str]) -> list[Path]:
    """Return names as paths."""
    return [Path(name) for name in names]


def requested(
    format: str,  # noqa: A002  what the option is called
    output: str,
    fail_on: str,
    *,
    allow_empty: bool,
    verbose: bool,
    quiet: bool,
) -> "OutputRequest":
    """Return the output request, or raise `UsageError`."""
    from ckaudit.cli.deliver import OutputRequest

    return OutputRequest(
        format=format,
        output=output,
        fail_on=severity(fail_on),
        allow_empty=allow_empty,
        verbose=verbose,
        quiet=quiet,
        formats=FEW_FORMATS,
    )


def check_into(into: str, step: int | None) -> None:
    """Raise `UsageError` before the work starts if its result could not be stored."""
    if step is not None and not into:
        raise UsageError("--step says where in a run values belong", hint="name the run: --into RUN")
    if into and not Path(into).is_dir():
        raise UsageError(f"--into: there is no folder {into}", hint="name a run folder")
    if step is not None:
        from ckaudit.contract.io.add_line import step_and_session

        step_and_session(Path(into), step)


def deliver_measures(measures: "Measures", request: "OutputRequest", *, into: str, step: int | None) -> int:
    """Show measured values, add them to a run if requested, and return the exit code."""
    from ckaudit.cli.deliver import write_output
    from ckaudit.reports.measures import render

    write_output(lambda view: render(measures, request.format, view), request)
    if into and measures.measures:
        from ckaudit.contract.io.add_line import add_line

        name = f"scalars-{measures.command.replace(' ', '-')}.jsonl"
        values = {measure.name: measure.value for measure in measures.measures}
        at = add_line(Path(into), name, values, step=step)
        say(f"added {plural(len(values), 'value')} at step {at} to {Path(into) / name}")
    if not measures.measures and not request.allow_empty:
        say("error: nothing could be measured")
        return 2
    failing = SEVERITIES[: SEVERITIES.index(request.fail_on or "sev1") + 1]
    return 1 if any(finding.severity in failing for finding in measures.findings) else 0
