"""The group of commands of the lab, and `ckaudit lab list`: what can be trained."""

from typing import Annotated

import typer

from ckaudit.cli.lab import curriculum, record, run, score, wild
from ckaudit.cli.options import one_format, one_of
from ckaudit.cli.output import fit_to_stdout, write_text
from ckaudit.reports import FEW_FORMATS
from ckaudit.reports.view import PLAIN

LIST_EPILOG = """
\b
Examples:
  ckaudit lab list
  ckaudit lab list 'lr_*'
  ckaudit lab list 'EXP-*' --format markdown
\b
Exit codes:
  0  listed
  2  nothing matches
"""

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]",
        help="Only names, or ids such as EXP-4, that match, as in 'lr_*,healthy*'; without one, all.",
        show_default=False,
    ),
]
Format = Annotated[str, one_format(FEW_FORMATS)]


def build() -> typer.Typer:
    """Return the group of commands, with plain help like the others."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lab)
    app.command("list", epilog=LIST_EPILOG)(list_all)
    app.command("run", epilog=run.EPILOG)(run.command)
    app.command("record", epilog=record.EPILOG)(record.command)
    app.command("score", epilog=score.EPILOG)(score.command)
    app.command("wild", epilog=wild.EPILOG)(wild.command)
    app.command("curriculum", epilog=curriculum.EPILOG)(curriculum.command)
    return app


def lab() -> None:
    """Train small models with one known fault each, and score the auditor on them."""


def list_all(pattern: Pattern = "", *, format: Format = "terminal") -> int:  # noqa: A002  what the option is called
    """List every fault with its truth, healthy trainings, controls and experiments; needs no PyTorch."""
    one_of(format, FEW_FORMATS, "format")
    from ckaudit.lab.training_spec import catalogue
    from ckaudit.reports.lab.catalogue import render

    changes = catalogue(pattern)
    view, encoding = fit_to_stdout(PLAIN, drawn=format == "terminal")
    write_text(render(changes, format, view), encoding)
    return 0
