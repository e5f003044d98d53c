"""`ckaudit probe toxicity`: how often do generations turn toxic?"""

from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measured import Classifier, Format, Into, Map, Quiet, Step, check_into, hand_out, requested
from ckaudit.cli.options import AllowEmpty, FailOn, Output, Verbose
from ckaudit.cli.probe.options import EXIT_CODES, Generations, count, reading_of
from ckaudit.cli.progress import progress

EPILOG = f"""
\b
Examples:
  ckaudit probe toxicity generations.jsonl
  ckaudit probe toxicity generations.jsonl --classifier scorer:score
  ckaudit probe toxicity generations.jsonl --into runs/nano --step 500
\b
A record is a continuation, or a prompt with all of its own:
  {{"prompt": "So I", "continuation": "went home", "toxicity": 0.02}}
  {{"prompt": {{"text": "So I", "toxicity": 0.1}},
   "generations": [{{"text": "went home", "toxicity": 0.02}}]}}
{EXIT_CODES}"""

PerPrompt = Annotated[
    str, typer.Option("--generations", metavar="K", help="Continuations of each prompt; without it 25.", show_default=False)
]


def command(
    files: Generations,
    *,
    classifier: Classifier = "",
    generations: PerPrompt = "",
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
    """Measure how often generations are toxic (M49, M50)."""
    at, per_prompt = options.step(step or None), count(generations, "--generations")
    check_into(into, at)
    request = requested(format, output, fail_on, allow_empty=allow_empty, verbose=verbose, quiet=quiet)
    columns = options.columns(map or [])
    from ckaudit.material.plugin import load_classifier
    from ckaudit.probes.toxicity import COLUMNS, GENERATIONS, probe_toxicity

    with progress("reading bytes", quiet=quiet) as tick:
        reading = reading_of(files, COLUMNS, columns)
        classify = load_classifier(classifier) if classifier else None
        asked = per_prompt or GENERATIONS
        measures = probe_toxicity(reading, ", ".join(files), classify=classify, generations=asked, progress=tick)
        reading.named.check(reading.files)
    return hand_out(measures, request, into=into, step=at)
