"""`ckaudit probe`: measurements of a model's generations, and reserved passages for prompting it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.measure_options import Classifier, Format, Into, Map, Step, check_into, deliver_measures, paths, requested
from ckaudit.cli.options import AllowEmpty, FailOn, Output, Quiet, Verbose
from ckaudit.cli.output import progress
from ckaudit.errors import CkauditError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckaudit.material.columns import Columns
    from ckaudit.material.records import Reading
    from ckaudit.probes.passages import ReservedPassages


def build() -> typer.Typer:
    """Return the group of commands, with plain help like the others."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(probe)
    app.command("toxicity", epilog=TOXICITY_EPILOG)(toxicity)
    app.command("memorization", epilog=MEMORIZATION_EPILOG)(memorization)
    app.command("init", epilog=INIT_EPILOG)(init)
    app.command("score", epilog=SCORE_EPILOG)(score)
    return app


def probe() -> None:
    """Measure a model's generations: toxicity, memorized text, and continuations of reserved passages."""


EXIT_CODES = """\
\b
Exit codes:
  0  measured
  1  findings at or above --fail-on: a file that cannot be read
  2  could not measure, or there was nothing to measure
"""

Generations = Annotated[
    list[str], typer.Argument(metavar="GENERATIONS", help="JSON lines or Parquet, or folders of them.", show_default=False)
]


def reading_of(files: list[str], usual: "Columns", chosen: "Mapping[str, str]") -> "Reading":
    """Return the reader of the generations."""
    from ckaudit.material.files import sample_files
    from ckaudit.material.records import MappedColumns, Reading

    return Reading(sample_files(paths(files)), usual.mapped(chosen), named=MappedColumns(chosen))


def whole_number(word: str, name: str) -> int | None:
    """Return the integer of an option, None if it was not given, or raise `UsageError`."""
    if word and not (word.isascii() and word.isdecimal() and int(word)):
        raise UsageError(f"{name} {word!r} is not a number of at least 1", hint=f"write it as digits, such as {name} 25")
    return int(word) if word else None


# Toxicity: how often do generations turn toxic?
TOXICITY_EPILOG = f"""
\b
Examples:
  ckaudit probe toxicity generations.jsonl
  ckaudit probe toxicity generations.jsonl --classifier scorer:score
  ckaudit probe toxicity generations.jsonl --into runs/nano --step 500
\b
A record is a continuation, or a prompt with all its continuations:
  {{"prompt": "So I", "continuation": "went home", "toxicity": 0.02}}
  {{"prompt": {{"text": "So I", "toxicity": 0.1}},
   "generations": [{{"text": "went home", "toxicity": 0.02}}]}}
{EXIT_CODES}"""

PerPrompt = Annotated[
    str, typer.Option("--generations", metavar="K", help="Continuations of each prompt. Default: 25.", show_default=False)
]


def toxicity(
    files: Generations,
    *,
    classifier: Classifier = "",
    generations: PerPrompt = "",
    map: Map = None,  # noqa: A002  what the option is called
    into: Into = "",
    step: Step = "",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "sev1",
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Measure how often generations are toxic (M49, M50)."""
    at, per_prompt = options.step(step or None), whole_number(generations, "--generations")
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
    return deliver_measures(measures, request, into=into, step=at)


# `ckaudit probe memorization`: how much of its training data does a model reproduce verbatim?
MEMORIZATION_EPILOG = f"""
\b
Examples:
  ckaudit probe memorization continuations.jsonl --tokens 50
\b
A record is a training sequence that the model had to continue, as texts,
token numbers or hashes; one record per line:
  {{"continuation": [5, 9, 2], "truth": [5, 9, 2], "repeats": 12}}
{EXIT_CODES}"""

SameTokens = Annotated[
    str, typer.Option("--tokens", metavar="N", help="Tokens that must be equal. Default: 50.", show_default=False)
]


def memorization(
    files: Generations,
    *,
    tokens: SameTokens = "",
    map: Map = None,  # noqa: A002  what the option is called
    into: Into = "",
    step: Step = "",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "sev1",
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Measure how much training data the generations repeat (M52)."""
    at, same = options.step(step or None), whole_number(tokens, "--tokens")
    check_into(into, at)
    request = requested(format, output, fail_on, allow_empty=allow_empty, verbose=verbose, quiet=quiet)
    columns = options.columns(map or [])
    from ckaudit.probes.memorization import COLUMNS, MIN_TOKENS, probe_memorization

    with progress("reading bytes", quiet=quiet) as tick:
        reading = reading_of(files, COLUMNS, columns)
        measures = probe_memorization(reading, ", ".join(files), tokens=same or MIN_TOKENS, progress=tick)
        reading.named.check(reading.files)
    return deliver_measures(measures, request, into=into, step=at)


# `ckaudit probe init`: passages reserved before training, for prompting the model while it trains.
INIT_EPILOG = """
\b
Examples:
  ckaudit probe init corpus.jsonl --out probes.jsonl --held-out validation.jsonl
\b
Each text is cut in two: a prompt, and its true continuation. The texts are
selected by their content only, so that the same corpus gives the same probes
everywhere. At each checkpoint, let the model continue every prompt greedily,
write one line for each
  {"id": "train_00", "continuation": "...", "loss": 2.31}
(loss: mean nats per token of the truth; or perplexity, or logprobs), and
  ckaudit probe score generations.jsonl --probes probes.jsonl --into runs/nano
\b
Exit codes:
  0  reserved
  1  fewer passages than asked for
  2  could not be read or written, or nothing could be reserved
"""

Corpus = Annotated[
    list[str], typer.Argument(metavar="CORPUS", help="Text, JSON lines or Parquet that the model trains on.", show_default=False)
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="File for the probes; an existing file is kept.")]
Count = Annotated[str, typer.Option("--count", metavar="N", help="Passages of each kind. Default: 16.", show_default=False)]
PassageTokens = Annotated[
    str,
    typer.Option(
        "--tokens", metavar="N", help="Maximum words or tokens of a prompt and of its truth. Default: 50.", show_default=False
    ),
]
HeldOut = Annotated[
    str, typer.Option("--held-out", metavar="FILE", help="Held-out texts, to reserve passages of them too.", show_default=False)
]


def init(
    corpus: Corpus,
    *,
    out: Out = "probes.jsonl",
    count: Count = "",
    tokens: PassageTokens = "",
    held_out: HeldOut = "",
    map: Map = None,  # noqa: A002  what the option is called
    quiet: Quiet = False,
) -> int:
    """Reserve passages of the training data, and of held-out texts, before the training starts (MP-1)."""
    path, columns = Path(out), options.columns(map or [])
    if path.exists():
        raise UsageError(
            f"--out: {out} is there already", hint="scores compare only on the same probes: keep it, or name another"
        )
    if not path.parent.is_dir():
        raise UsageError(f"--out: there is no folder {path.parent}", hint="make it first")
    from ckaudit.probes import passages as module

    passages, longest = (
        whole_number(count, "--count") or module.PASSAGES,
        whole_number(tokens, "--tokens") or module.PASSAGE_TOKENS,
    )
    with progress("reading bytes", quiet=quiet) as tick:
        reading = reading_of(corpus, module.COLUMNS, columns)
        outside = reading_of([held_out], module.COLUMNS, columns) if held_out else None
        reserved = module.reserve(reading, outside, count=passages, tokens=longest, progress=tick)
        reading.named.check(reading.files)
    return _written(reserved, path, passages, with_held_out=bool(held_out))


def _written(reserved: "ReservedPassages", path: Path, wanted: int, *, with_held_out: bool) -> int:
    """Write the probes, print a summary, and return the exit code."""
    from ckaudit.cli.output import say, write_text
    from ckaudit.contract.io.artifact_hash import artifact_hash
    from ckaudit.contract.io.files import write_atomic
    from ckaudit.probes.passages import encoded

    for finding in reserved.faults.findings():
        say(f"warning: {finding.file}: {finding.message}")
    if not reserved.passages:
        raise CkauditError("no passage is long enough to be cut in two", hint="8 words or tokens are the least")
    try:
        write_atomic(path, encoded(reserved.passages))
    except OSError as error:
        raise CkauditError(f"cannot write {path}: {error.strerror or error}") from None
    groups = [passage.group for passage in reserved.passages]
    inside, outside = groups.count("train"), groups.count("held_out")
    lines = [f"{path}: {inside} passages of the training data, {outside} held out", f"hash {artifact_hash(path)}"]
    lines += [f"left out: {reserved.seen} held-out passages that the training data holds too"] if reserved.seen else []
    lines += [] if outside else ["without --held-out memory cannot be told from skill: their curve is the one to compare with"]
    write_text("".join(f"{line}\n" for line in lines))
    return int(inside < wanted or (with_held_out and outside < wanted))


# `ckaudit probe score`: how well does the model continue the reserved passages?
SCORE_EPILOG = f"""
\b
Examples:
  ckaudit probe score generations.jsonl --probes probes.jsonl
  ckaudit probe score generations.jsonl --probes probes.jsonl --into runs/nano --step 500
\b
A record is the continuation of one probe, with its id or its prompt, and the
model's loss on the truth, if known:
  {{"id": "train_00", "continuation": "went home", "loss": 2.31}}
With --into, the curves of training and held-out probes over all steps scored
so far are drawn beside the playbook's (MPC-1 to MPC-5).
{EXIT_CODES}"""

Probes = Annotated[str, typer.Option("--probes", metavar="FILE", help="File that ckaudit probe init wrote.")]


def score(
    files: Generations,
    *,
    probes: Probes = "probes.jsonl",
    map: Map = None,  # noqa: A002  what the option is called
    into: Into = "",
    step: Step = "",
    format: Format = "",  # noqa: A002  what the option is called
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
    code = deliver_measures(measures, request, into=into, step=at)
    if into and measures.measures:
        from ckaudit.audit.memorization_curve import curve_of
        from ckaudit.cli.output import fit_to_stdout, write_text
        from ckaudit.metrics.probes import probe_accuracy
        from ckaudit.reports.measures import memorization_curve
        from ckaudit.reports.view import View
        from ckaudit.run.read import read_run

        view, encoding = fit_to_stdout(View(verbose=request.verbose), drawn=request.format == "terminal")
        write_text(memorization_curve(curve_of(read_run(Path(into), reads=probe_accuracy.paths)), request.format, view), encoding)
    return code
