"""`ckaudit lab score`: how often the auditor is right."""

from functools import partial
from typing import Annotated

import typer

from ckaudit.cli.lab.record import Cache, Jobs, Only, SplitName, cache_folder, count, splits, train_missing
from ckaudit.cli.options import Verbose, one_format, one_of
from ckaudit.cli.output import check_folder, fitted, progress, say, send
from ckaudit.reports import FEW_FORMATS, render
from ckaudit.reports.view import View

EPILOG = """
\b
Examples:
  ckaudit lab score
  ckaudit lab score --split test --format json -o score.json
  ckaudit lab score --only 'lr_*' --bare --verbose
  ckaudit lab score --split both --write
\b
Every scoring of the test split adds a line to docs/benchmark-history.csv,
where there is a folder docs: how often one looked belongs to the result.
\b
Exit codes:
  0  scored
  1  a run broke the audit
  2  nothing is recorded, or could not be trained
"""

Format = Annotated[str, one_format(FEW_FORMATS)]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of the screen.", show_default=False)
]
Bare = Annotated[bool, typer.Option("--bare", help="Show the auditor only the log that other tools read.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train everything again first; without it nothing is trained.")]
Write = Annotated[
    bool, typer.Option("--write", help="Write the tables into docs/benchmark.md, each split into a part of its own.")
]


def command(
    *,
    split: SplitName = "dev",
    cache: Cache = "",
    only: Only = "",
    bare: Bare = False,
    fresh: Fresh = False,
    format: Format = "terminal",  # noqa: A002  what the option is called
    output: Output = "",
    write: Write = False,
    jobs: Jobs = "2",
    verbose: Verbose = False,
) -> int:
    """Audit every recording, hold the verdicts against the truth, and print how often they are right.

    Nothing is trained, unless with --fresh: what was not recorded by ckaudit lab record is named and not scored.
    """
    one_of(format, FEW_FORMATS, "format")
    check_folder(output)
    chosen, workers = splits(split), count(jobs, "--jobs")
    from ckaudit.lab.score.publish import add_history, write_document
    from ckaudit.lab.score.score import score
    from ckaudit.reports.lab.markdown import log_alone

    if fresh:
        train_missing(split, cache, only, jobs=workers, fresh=True)
    with progress("auditing run") as tick:
        found = score(cache_folder(cache), chosen, only=only, bare=bare, jobs=workers, progress=tick)
    view, encoding = fitted(View(verbose=verbose), drawn=format == "terminal" and not output)
    send(render(found, format, view), encoding, output)
    say(f"wrote {output}" if output else "")
    say(add_history(found) if "test" in chosen else "")
    say(write_document(found, log_alone if bare else partial(render, format="markdown")) if write else "")
    return 1 if found.broken else 0
