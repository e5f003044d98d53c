"""`ckaudit probe memorization`: how much of its training data does a model say word for word?"""

from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measured import Format, Into, Map, Quiet, Step, check_into, hand_out, requested
from ckaudit.cli.options import AllowEmpty, FailOn, Output, Verbose
from ckaudit.cli.probe.options import EXIT_CODES, Generations, count, reading_of
from ckaudit.cli.progress import progress

EPILOG = f"""
\b
Examples:
  ckaudit probe memorization continuations.jsonl --tokens 50
\b
A record is a training sequence that the model was asked to go on with, as
texts, token numbers or hashes; each record stands on one line:
  {{"continuation": [5, 9, 2], "truth": [5, 9, 2], "repeats": 12}}
{EXIT_CODES}"""

Tokens = Annotated[
    str, typer.Option("--tokens", metavar="N", help="Tokens that must be the same; without it 50.", show_default=False)
]


def command(
    files: Generations,
    *,
    tokens: Tokens = "",
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
    """Measure how much of the training data generations repeat (M52)."""
    at, same = options.step(step or None), count(tokens, "--tokens")
    check_into(into, at)
    request = requested(format, output, fail_on, allow_empty=allow_empty, verbose=verbose, quiet=quiet)
    columns = options.columns(map or [])
    from ckaudit.probes.memorization import COLUMNS, TOKENS, probe_memorization

    with progress("reading bytes", quiet=quiet) as tick:
        reading = reading_of(files, COLUMNS, columns)
        measures = probe_memorization(reading, ", ".join(files), tokens=same or TOKENS, progress=tick)
        reading.named.check(reading.files)
    return hand_out(measures, request, into=into, step=at)
