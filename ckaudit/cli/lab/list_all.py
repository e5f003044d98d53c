"""`ckaudit lab list`: what can be trained."""

from typing import Annotated

import typer

from ckaudit.cli.options import one_of
from ckaudit.cli.output import fitted, send
from ckaudit.reports.view import PLAIN

EPILOG = """
\b
Examples:
  ckaudit lab list
  ckaudit lab list --format json
\b
Exit codes:
  0  listed
"""
FORMATS = ("terminal", "json")

Format = Annotated[
    str,
    typer.Option("--format", "-f", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.", autocompletion=lambda: list(FORMATS)),
]


def command(*, format: Format = "terminal") -> int:  # noqa: A002  what the option is called
    """List every fault with its truth, every control and every experiment; needs no PyTorch."""
    one_of(format, FORMATS, "format")
    from ckaudit.lab.story import controls, experiments, faults
    from ckaudit.reports.lab.catalogue import as_json, on_screen

    found = faults(), controls(), experiments()
    if format == "json":
        send(as_json(*found))
        return 0
    view, encoding = fitted(PLAIN, drawn=True)
    send(on_screen(*found, view), encoding)
    return 0
