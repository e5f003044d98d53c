"""`ckaudit data`: what is this training data made of?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ckaudit.cli import options
from ckaudit.cli.measure_options import Classifier, Format, Into, Map, Step, check_into, deliver_measures, paths, requested
from ckaudit.cli.options import AllowEmpty, FailOn, Output, Quiet, Verbose, checked_choice
from ckaudit.cli.output import progress
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from ckaudit.data import Tools
    from ckaudit.material import records

EPILOG = """
\b
Examples:
  ckaudit data shards/ --validation valid.jsonl --tokenizer tokenizer.json
  ckaudit data today.jsonl --reference old.jsonl --into runs/nano --step 500
  ckaudit data dump.parquet --map text=body --map source=meta.source
\b
These columns of JSON lines and Parquet are read:
  text (content)            the document
  source                    its origin
  tokens (n_tokens, token_count, input_ids)   their number, or the tokens
  n_pad, attention_mask     padding
  toxicity (score)          0 to 1
  reject (filter)           the rule or rules that rejected it, or true;
                            a document without it was kept
\b
Near duplicates share 0.8 or more of their runs of five words (Jaccard index).
Patterns find personal data. Addresses that standards reserve, such as
example.com, and no-reply mailboxes are not counted.
\b
Exit codes:
  0  measured
  1  findings at or above --fail-on: a file that cannot be read
  2  could not measure, or there was nothing to measure
"""

Samples = Annotated[
    list[str],
    typer.Argument(metavar="SAMPLE", help="Text, JSON lines and Parquet files, or folders of them.", show_default=False),
]
Validation = Annotated[
    list[str] | None,
    typer.Option("--validation", metavar="PATH", help="Held-out texts to look for in the sample.", show_default=False),
]
Reference = Annotated[
    list[str] | None, typer.Option("--reference", metavar="PATH", help="An earlier sample to compare with.", show_default=False)
]
Tokenizer = Annotated[
    str, typer.Option("--tokenizer", metavar="FILE", help="A tokenizer.json that counts tokens of texts.", show_default=False)
]
PadId = Annotated[str, typer.Option("--pad-id", metavar="N", help="Number of the padding token.", show_default=False)]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="HOW",
        help="A document of a text file is the whole file, a paragraph or a line.",
        autocompletion=lambda: ["file", "paragraph", "line"],
    ),
]


def command(
    samples: Samples,
    *,
    validation: Validation = None,
    reference: Reference = None,
    tokenizer: Tokenizer = "",
    classifier: Classifier = "",
    pad_id: PadId = "",
    split: Split = "file",
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
    """Measure training data: mix, languages, filters, tokens, near duplicates, leaks, toxicity, personal data."""
    at = options.step(step or None)
    check_into(into, at)
    request = requested(format, output, fail_on, allow_empty=allow_empty, verbose=verbose, quiet=quiet)
    from ckaudit.data import measure
    from ckaudit.data.document import COLUMNS
    from ckaudit.material.files import SampleFile, sample_files
    from ckaudit.material.records import SPLITS, MappedColumns, Reading

    checked_split = cast("records.Split", checked_choice(split, SPLITS, "split"))
    chosen = options.columns(map or [])
    columns, named, files = COLUMNS.mapped(chosen), MappedColumns(chosen), list[SampleFile]()

    def reading(names: list[str]) -> Reading:
        files.extend(chosen_files := sample_files(paths(names)))
        return Reading(chosen_files, columns, checked_split, named)

    tools = _tools(tokenizer, classifier, pad_id)
    with progress("reading bytes", quiet=quiet) as tick:
        measures = measure(
            reading(samples),
            ", ".join(samples),
            validation=reading(validation) if validation else None,
            reference=reading(reference) if reference else None,
            tools=tools,
            progress=tick,
        )
    named.check(files)
    return deliver_measures(measures, request, into=into, step=at)


def _tools(tokenizer: str, classifier: str, pad_id: str) -> "Tools":
    """Return the optional tools for the measurement."""
    from ckaudit.data import Tools
    from ckaudit.material.plugin import load_classifier

    return Tools(
        tokenizer=Path(tokenizer) if tokenizer else None,
        classifier=load_classifier(classifier) if classifier else None,
        pad_id=_token(pad_id),
    )


def _token(word: str) -> int | None:
    if word and not (word.isascii() and word.isdecimal()):
        raise UsageError(f"--pad-id {word!r} is not a token's number", hint="write it as digits, such as --pad-id 0")
    return int(word) if word else None
