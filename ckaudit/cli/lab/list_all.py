"""`ckaudit lab list`: what can be trained."""

from typing import Annotated

import typer

from ckaudit.cli.options import one_format, one_of
from ckaudit.cli.output import fit_to_stdout, write_text
from ckaudit.reports import FEW_FORMATS
from ckaudit.reports.view import PLAIN

EPILOG = """
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


def command(pattern: Pattern = "", *, format: Format = "terminal") -> int:  # noqa: A002  what the option is called
    """List every fault with its truth, healthy trainings, controls and experiments; needs no PyTorch."""
    one_of(format, FEW_FORMATS, "format")
    from ckaudit.lab.training_spec import catalogue
    from ckaudit.reports.lab.catalogue import render

    changes = catalogue(pattern)
    view, encoding = fit_to_stdout(PLAIN, drawn=format == "terminal")
    write_text(render(changes, format, view), encoding)
    return 0
