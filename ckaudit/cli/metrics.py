"""`ckaudit metrics`: every derived series of a run, as a table or as data."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.options import Map, Run, Which
from ckaudit.cli.output import check_folder, fit_to_stdout, open_output, progress, say, write_text
from ckaudit.errors import UsageError
from ckaudit.remote.addresses import with_addresses

if TYPE_CHECKING:
    from ckaudit.audit.measure import Measurement, StepRange
    from ckaudit.contract.schema.import_options import ImportOptions

EPILOG = """
\b
Examples:
  ckaudit metrics runs/nano
  ckaudit metrics runs/nano gradient_norm 'attn_*' M19 --step 500
  ckaudit metrics runs/nano -f parquet -o nano.parquet --from 1000 --every 100
\b
Columns:
  last    the last recorded value; of several labels the worst: the lowest
          if low is bad (entropies, scores, states), else the largest in
          magnitude
  trend   whether the second half of the points rises or falls (Mann-Kendall)
  shape   all points in a row, with the most extreme one of each interval
  where   the label shown, and the number of labels; with NAME, a line each
\b
In data (json, csv, parquet, arrow) the label of a metric without tensors,
heads or slices is its own name.
\b
Exit codes:
  0  at least one metric has a value
  2  no metric has a value, or the run could not be read
"""

FORMATS = ("terminal", "json", "csv", "parquet", "arrow")


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Metrics, patterns such as 'grad_*', rows such as M19, or other names that `ckaudit explain` knows.",
        show_default=False,
    ),
]
Step = Annotated[
    str, typer.Option("--step", metavar="N", help="Compute with the data up to step N. Default: all.", show_default=False)
]
From = Annotated[str, typer.Option("--from", metavar="N", help="Show steps from N on.", show_default=False)]
To = Annotated[str, typer.Option("--to", metavar="N", help="Show steps up to N.", show_default=False)]
Every = Annotated[str, typer.Option("--every", metavar="K", help="Show the last value of every K steps.", show_default=False)]
Format = Annotated[str, options.file_format_option(FORMATS)]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of the screen.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="Show every label of every metric, not only 20 of those named.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List the metrics without a value.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and notes.")]


def command(
    run: Run,
    names: Names = None,
    *,
    step: Step = "",
    first: From = "",
    last: To = "",
    every: Every = "",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    all: All = False,  # noqa: A002  what the option is called
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    tau_slices: options.TauSlices = "",
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Show every metric of a run: last value, trend and shape; with names, each of their tensors, heads or slices."""
    format = options.format_for(format, output, FORMATS)  # noqa: A001  what the option is called
    check_folder(output)
    if format in ("parquet", "arrow") and not output and sys.stdout.isatty():
        raise UsageError(f"{format} is not text for a screen", hint="name a file: -o FILE")
    stretch = _stretch(step, first, last, every)
    import_options = _of_policy(options.import_options(map, which, tau_slices=tau_slices))
    from msgspec.structs import replace

    from ckaudit.audit.measure import measure

    with progress("reading", quiet=quiet) as tick:
        measurement = with_addresses(
            measure(Path(run), names=names or [], stretch=stretch, import_options=import_options, progress=tick)
        )
    if format == "terminal":
        shown = replace(measurement, notes=()) if quiet else measurement
        from ckaudit.reports.terminal.metrics import draw
        from ckaudit.reports.view import View

        view, encoding = fit_to_stdout(View(verbose=verbose), drawn=not output)
        write_text(draw(shown, view, each_label=all or bool(names), max_labels=None if all else 20), encoding, output)
    else:
        _write_series(measurement, format, output, quiet=quiet)
    if output and not quiet:
        say(f"wrote {output}")
    if not quiet:
        options.keep_columns(import_options, run)
    return _code(measurement)


def _write_series(measurement: "Measurement", form: str, output: str, *, quiet: bool) -> None:
    """Write every value as data; notes, for which data has no room, go to standard error."""
    from ckaudit.reports.metric_series import write

    with open_output(output) as stream, progress("writing", quiet=quiet) as tick:
        write(measurement, form, stream, tick)
    for note in () if quiet else measurement.notes:
        say(f"note: {note}")


def _stretch(step: str, first: str, last: str, every: str) -> "StepRange":
    """Return the requested range of steps, or raise `UsageError`."""
    from ckaudit.audit.measure import StepRange

    numbers = [
        options.step(word or None, option)
        for word, option in zip((first, last, every), ("--from", "--to", "--every"), strict=True)
    ]
    start, end, turn = numbers
    if start is not None and end is not None and start > end:
        raise UsageError(f"--from {start} lies behind --to {end}", hint="swap them")
    if turn == 0:
        raise UsageError("--every 0 shows nothing", hint="--every 100 shows the last value of every 100 steps")
    return StepRange(step=options.step(step or None), first=start, last=end, every=turn or 1)


def _of_policy(import_options: "ImportOptions") -> "ImportOptions":
    """Return import options with the slices of the policy for tau, if the user names none."""
    from msgspec.structs import replace

    from ckaudit.effective_policy import policy_as_written

    policy = None if import_options.tau_slices else policy_as_written()
    return import_options if policy is None else replace(import_options, tau_slices=policy.base.tau_slices)


def _code(measurement: "Measurement") -> int:
    """Return the exit code, and print the reason if there is nothing to show or a metric failed."""
    broken = [missing.name for missing in measurement.missing if missing.reason == "broke"]
    if broken:
        say(f"error: {', '.join(broken)} broke: the table is not complete")
        return 2
    if not measurement.measured:
        say("error: no metric has a value in these steps")
        outside = [missing.name for missing in measurement.missing if missing.reason == "not_in_these_steps"]
        first = f"{outside[0]} has values in others" if outside else "ckaudit metrics RUN -v says what was not recorded"
        end = f"; the run is recorded up to step {measurement.step:,}" if outside and measurement.step is not None else ""
        say(f"hint: {first}{end}")
        return 2
    return 0
