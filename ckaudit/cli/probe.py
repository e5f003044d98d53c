"""`ckaudit probe`: what do a model's generations give away?"""

from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measured import Classifier, Format, Into, Map, Quiet, Step, check_into, hand_out, paths, requested
from ckaudit.cli.options import AllowEmpty, FailOn, Output, Verbose, one_of
from ckaudit.cli.progress import Tick, progress
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckaudit.contract.measures import Measures
    from ckaudit.material.columns import Columns
    from ckaudit.material.records import Reading

KINDS = ("toxicity", "memorization")

EPILOG = """
\b
Examples:
  ckaudit probe toxicity generations.jsonl
  ckaudit probe toxicity generations.jsonl --classifier scorer:score
  ckaudit probe toxicity generations.jsonl --into runs/nano --step 500
  ckaudit probe memorization continuations.jsonl --tokens 50
\b
A record of toxicity is a continuation, or a prompt with all of its own:
  {"prompt": "So I", "continuation": "went home", "toxicity": 0.02}
  {"prompt": {"text": "So I", "toxicity": 0.1},
   "generations": [{"text": "went home", "toxicity": 0.02}]}
A record of memorization is a training sequence that the model was asked to go
on with, as texts, token numbers or hashes; each record stands on one line:
  {"continuation": [5, 9, 2], "truth": [5, 9, 2], "repeats": 12}
\b
Exit codes:
  0  measured
  1  findings at or above --fail-on: a file that cannot be read
  2  could not measure, or there was nothing to measure
"""

Kind = Annotated[
    str,
    typer.Argument(metavar="KIND", help="toxicity or memorization.", show_default=False, autocompletion=lambda: list(KINDS)),
]
Generations = Annotated[
    list[str], typer.Argument(metavar="GENERATIONS", help="JSON lines or Parquet, or folders of them.", show_default=False)
]
PerPrompt = Annotated[
    str,
    typer.Option("--generations", metavar="K", help="Toxicity: continuations of each prompt; without it 25.", show_default=False),
]
Tokens = Annotated[
    str,
    typer.Option("--tokens", metavar="N", help="Memorization: tokens that must be the same; without it 50.", show_default=False),
]


def command(
    kind: Kind,
    files: Generations,
    *,
    classifier: Classifier = "",
    generations: PerPrompt = "",
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
    """Measure how often generations are toxic, or how much of the training data they repeat."""
    one_of(kind, KINDS, "probe")
    foreign = {"--tokens": tokens} if kind == "toxicity" else {"--classifier": classifier, "--generations": generations}
    if given := [name for name, value in foreign.items() if value]:
        raise UsageError(f"{given[0]} has no meaning for {kind}", hint="ckaudit probe --help")
    at = options.step(step or None)
    check_into(into, at)
    request = requested(format, output, fail_on, allow_empty=allow_empty, verbose=verbose, quiet=quiet)
    columns = options.columns(map or [])
    with progress("reading bytes", quiet=quiet) as tick:
        if kind == "toxicity":
            found = _toxicity(files, columns, classifier, _count(generations, "--generations"), tick)
        else:
            found = _memorization(files, columns, _count(tokens, "--tokens"), tick)
    return hand_out(found, request, into=into, step=at)


def _toxicity(
    files: list[str], columns: "Mapping[str, str]", classifier: str, generations: int | None, tick: Tick | None
) -> "Measures":
    from ckaudit.material.plugin import load_classifier
    from ckaudit.probes.toxicity import COLUMNS, GENERATIONS, probe_toxicity

    reading = _reading(files, COLUMNS, columns)
    found = probe_toxicity(
        reading,
        ", ".join(files),
        classify=load_classifier(classifier) if classifier else None,
        generations=generations or GENERATIONS,
        progress=tick,
    )
    reading.named.check(reading.files)
    return found


def _memorization(files: list[str], columns: "Mapping[str, str]", tokens: int | None, tick: Tick | None) -> "Measures":
    from ckaudit.probes.memorization import COLUMNS, TOKENS, probe_memorization

    reading = _reading(files, COLUMNS, columns)
    found = probe_memorization(reading, ", ".join(files), tokens=tokens or TOKENS, progress=tick)
    reading.named.check(reading.files)
    return found


def _reading(files: list[str], usual: "Columns", chosen: "Mapping[str, str]") -> "Reading":
    from ckaudit.material.files import sample_files
    from ckaudit.material.named import Named
    from ckaudit.material.records import Reading

    return Reading(sample_files(paths(files)), usual.mapped(chosen), named=Named(chosen))


def _count(word: str, name: str) -> int | None:
    if word and not (word.isascii() and word.isdecimal() and int(word)):
        raise UsageError(f"{name} {word!r} is not a number of at least 1", hint=f"write it as digits, such as {name} 25")
    return int(word) if word else None
