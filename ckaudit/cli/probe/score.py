"""`ckaudit probe score`: how well does the model continue the passages that were reserved?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measured import Format, Into, Map, Quiet, Step, check_into, hand_out, requested
from ckaudit.cli.options import AllowEmpty, FailOn, Output, Verbose
from ckaudit.cli.probe.options import EXIT_CODES, Generations, reading_of
from ckaudit.cli.progress import progress

if TYPE_CHECKING:
    from ckaudit.cli.deliver import Request

EPILOG = f"""
\b
Examples:
  ckaudit probe score generations.jsonl --probes probes.jsonl
  ckaudit probe score generations.jsonl --probes probes.jsonl --into runs/nano --step 500
\b
A record is the continuation of one probe, by its id or its prompt, and what
the truth cost the model, where that is known:
  {{"id": "train_00", "continuation": "went home", "loss": 2.31}}
With --into the curve of all steps scored so far is drawn, of training and of
held-out probes, beside the playbook's (MPC-1 to MPC-5).
{EXIT_CODES}"""

Probes = Annotated[str, typer.Option("--probes", metavar="FILE", help="What ckaudit probe init wrote.")]


def command(
    files: Generations,
    *,
    probes: Probes = "probes.jsonl",
    map: Map = None,  # noqa: A002  what the option is called
    into: Into = "",
    step: Step = "",
    format: Format = "terminal",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "sev1",
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Score how reserved passages are continued: exactly, in overlap, and by perplexity (MP-2 to MP-4)."""
    at = options.step(step or None)
    check_into(into, at)
    request = requested(format, output, fail_on, allow_empty=allow_empty, verbose=verbose, quiet=quiet)
    columns = options.columns(map or [])
    from ckaudit.probes.passages import read_passages
    from ckaudit.probes.score import COLUMNS, score_passages

    passages = read_passages(Path(probes))
    with progress("reading bytes", quiet=quiet) as tick:
        reading = reading_of(files, COLUMNS, columns)
        measures = score_passages(reading, passages, ", ".join(files), progress=tick)
        reading.named.check(reading.files)
    code = hand_out(measures, request, into=into, step=at)
    if into and measures.measures:
        _draw(into, request)
    return code


def _draw(into: str, request: "Request") -> None:
    """Show the curve of the run, on the screen where the values went to a file."""
    from ckaudit.audit.memorization_curve import curve_of
    from ckaudit.cli.output import fitted, send
    from ckaudit.metrics.probes import probe_accuracy
    from ckaudit.reports.measures import memorization_curve
    from ckaudit.reports.view import View
    from ckaudit.run.read import read_run

    view, encoding = fitted(View(verbose=request.verbose), drawn=request.format == "terminal")
    send(memorization_curve(curve_of(read_run(Path(into), reads=probe_accuracy.paths)), request.format, view), encoding)
