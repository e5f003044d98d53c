"""`ckaudit lab score`: how often the auditor is right."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.lab.record import Cache, Jobs, Only, cache_folder, count, splits, train_missing
from ckaudit.cli.lab.wild import WILD_SPLITS, Pairs, Seed, seed_number
from ckaudit.cli.options import Verbose, checked_choice, file_format_option, format_for
from ckaudit.cli.output import check_folder, fit_to_stdout, progress, say, write_text
from ckaudit.errors import UsageError
from ckaudit.reports import FEW_FORMATS, render
from ckaudit.reports.view import View

if TYPE_CHECKING:
    from ckaudit.lab.wild.pair_score import PairScore
    from ckaudit.lab.wild.score import WildScore

EPILOG = """
\b
Examples:
  ckaudit lab score
  ckaudit lab score --split test --format json -o score.json
  ckaudit lab score --only 'lr_*' --bare --verbose
  ckaudit lab score --split both --write
  ckaudit lab score --split wild-dev --pairs --verbose
\b
Every scoring of the test split adds a line to docs/benchmark-history.csv, if
there is a folder docs: the number of scorings belongs to the result. For
wild-dev and wild-test, the command also prints how many steps before the loss
shows a slow fault the audit reports it, by fault and by code with --verbose.
\b
Exit codes:
  0  scored
  1  the audit of a run failed
  2  nothing is recorded, or could not be trained
"""

SCORED = ("dev", "test", "both", *WILD_SPLITS)
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="dev (seeds 0, 1, 2: thresholds are tuned on it), test (10, 11: only scored), both, or wild-dev or wild-test.",
        autocompletion=lambda: list(SCORED),
    ),
]
Format = Annotated[str, file_format_option(FEW_FORMATS)]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of the screen.", show_default=False)
]
Bare = Annotated[bool, typer.Option("--bare", help="Show the auditor only the log that other tools read.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train everything again first; without it nothing is trained.")]
Write = Annotated[bool, typer.Option("--write", help="Write the tables into docs/benchmark.md, each split into its own part.")]


def command(
    *,
    split: Split = "dev",
    seed: Seed = "0",
    pairs: Pairs = False,
    cache: Cache = "",
    only: Only = "",
    bare: Bare = False,
    fresh: Fresh = False,
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    write: Write = False,
    jobs: Jobs = "2",
    verbose: Verbose = False,
) -> int:
    """Audit every recording, compare the verdicts with the labels, and print how often they are right.

    Nothing is trained without --fresh: recordings that ckaudit lab record has not made are listed and not scored.
    """
    format = format_for(format, output, FEW_FORMATS)  # noqa: A001  what the option is called
    check_folder(output)
    checked_choice(split, SCORED, "split")
    workers = count(jobs, "--jobs")
    if split in WILD_SPLITS:
        wild, code = _wild_with_exit_code(split, seed_number(seed), cache, workers, pairs=pairs)
        _show(wild, format, output, verbose=verbose)
        _publish_wild(wild, write=write)
        return code
    if pairs:
        raise UsageError(
            f"--pairs has no meaning for {split}", hint="--split wild-dev or --split wild-test has groups to compare"
        )
    if write and only:
        raise UsageError("--write keeps the tables of whole splits", hint="Leave out --only, or take --output FILE.")
    chosen = splits(split)
    from ckaudit.lab.score.publish import add_history, write_document
    from ckaudit.lab.score.score import score
    from ckaudit.reports.lab.markdown import log_alone

    if fresh:
        train_missing(split, cache, only, jobs=workers, fresh=True)
    with progress("auditing run") as tick:
        scored = score(cache_folder(cache), chosen, only=only, bare=bare, jobs=workers, progress=tick)
    _show(scored, format, output, verbose=verbose)
    say(add_history(scored) if "test" in chosen else "")
    say(write_document(scored, log_alone if bare else partial(render, format="markdown")) if write else "")
    return 1 if scored.broken else 0


def _show(scored: object, format: str, output: str, *, verbose: bool) -> None:  # noqa: A002
    view, encoding = fit_to_stdout(View(verbose=verbose), drawn=format == "terminal" and not output)
    write_text(render(scored, format, view), encoding, output)
    say(f"wrote {output}" if output else "")


def _wild_with_exit_code(split: str, seed: int, cache: str, jobs: int, *, pairs: bool) -> "tuple[WildScore | PairScore, int]":
    if pairs:
        return _pairs(split, seed, cache, jobs), 0
    score = _wild(split, seed, cache, jobs)
    return score, 1 if score.broken else 0


def _wild(split: str, seed: int, cache: str, jobs: int) -> "WildScore":
    from ckaudit.lab.wild.score import outcomes_of, summarized

    with progress("auditing draw") as tick:
        return summarized(split, seed, outcomes_of(cache_folder(cache), split, seed, jobs=jobs, progress=tick))


def _pairs(split: str, seed: int, cache: str, jobs: int) -> "PairScore":
    from ckaudit.lab.wild.pair_score import outcomes_of, summarized

    with progress("comparing group") as tick:
        return summarized(split, seed, outcomes_of(cache_folder(cache), split, seed, jobs=jobs, progress=tick))


def _publish_wild(scored: "WildScore | PairScore", *, write: bool) -> None:
    """Add the scoring of a drawing to the ledger, and write its tables if requested."""
    from ckaudit.lab.wild.publish import add_to_ledger, write_document

    say(add_to_ledger(scored))
    say(write_document(scored, partial(render, format="markdown")) if write else "")
