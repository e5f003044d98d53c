"""`ckaudit coverage`: what a run recorded, and what it should have."""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.options import Map, Verbose, Which, checked_choice, format_option
from ckaudit.cli.output import fit_to_stdout, progress, say, write_text
from ckaudit.reports import TOLD_FORMATS, render
from ckaudit.reports.view import View

EPILOG = """
\b
Examples:
  ckaudit coverage runs/nano
  ckaudit coverage runs/nano --scale medium --stage early --strict
\b
Without --scale: a word in model_scale_hint, else the parameters of run.json
(medium from 1 billion, large from 20 billion).
Without --stage: early up to the end of warm-up or a tenth of the planned
steps, late from four fifths of them, or once the learning rate is below half
its peak.
\b
Exit codes:
  0  printed
  1  with --strict: data that such a run must record is missing; standard
     error names it
  2  could not audit
"""
SCALES, STAGES = ("nano", "medium", "large"), ("early", "steady", "late")

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, a checkpoint, or a log of scalars.", show_default=False)]
Scale = Annotated[
    str,
    typer.Option(
        "--scale", metavar="SCALE", help="nano, medium or large.", show_default=False, autocompletion=lambda: list(SCALES)
    ),
]
Stage = Annotated[
    str,
    typer.Option(
        "--stage", metavar="STAGE", help="early, steady or late.", show_default=False, autocompletion=lambda: list(STAGES)
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if required data is missing.")]
Format = Annotated[str, format_option(TOLD_FORMATS)]


def command(
    run: Run,
    *,
    scale: Scale = "",
    stage: Stage = "",
    format: Format = "terminal",  # noqa: A002  what the option is called
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    strict: Strict = False,
    verbose: Verbose = False,
) -> int:
    """Show which metrics a run recorded, which it lacks, which checks need them, and how to record them.

    Missing metrics are listed below the line of code that records them: first those that most checks need, then musts,
    shoulds and nices; of equal lines, the cheaper one first.
    """
    checked_choice(format, TOLD_FORMATS, "format")
    for word, choices, what in ((scale, SCALES, "scale"), (stage, STAGES, "stage")):
        if word:
            checked_choice(word, choices, what)
    import_options = options.import_options(map, which)
    from ckaudit.audit.coverage.recorded import coverage

    with progress("reading") as tick:
        document = coverage(Path(run), scale=scale or None, stage=stage or None, import_options=import_options, progress=tick)
    view, encoding = fit_to_stdout(View(verbose=verbose), drawn=format == "terminal")
    write_text(render(document, format, view), encoding)
    missing = [row.name for row in document.missing("must")] if strict else []
    if missing:
        say(f"--strict: not recorded, though a run like this must: {', '.join(missing)}")
    return int(bool(missing))
