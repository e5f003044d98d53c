"""`ckaudit lab curriculum`: twelve experiments, each with one change and full observability."""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli.options import one_of
from ckaudit.cli.output import fitted, send
from ckaudit.errors import UsageError
from ckaudit.reports.view import PLAIN

EPILOG = """
\b
Examples:
  ckaudit lab curriculum
  ckaudit lab curriculum EXP-4 --out runs/exp4
\b
Exit codes:
  0  trained, audited and told
  2  could not train
"""


def _names() -> list[str]:
    from ckaudit.lab.story import experiments

    return list(experiments())


Name = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        help="An experiment, or its number such as EXP-4; without one, all are listed.",
        show_default=False,
        autocompletion=_names,
    ),
]
Out = Annotated[
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder for its runs; without it runs/NAME.", show_default=False)
]


def command(name: Name = "", *, out: Out = "") -> int:
    """Run an experiment to its end, and say what to look at."""
    from ckaudit.lab.story import experiments

    known = experiments()
    view, encoding = fitted(PLAIN, drawn=True)
    if not name:
        from ckaudit.reports.lab.catalogue import on_screen

        send(on_screen({}, {}, known, view), encoding)
        return 0
    ids = {each.id: each.name for each in known.values()}
    chosen = ids.get(name) or one_of(name, list(known), "experiment")
    raise UsageError(f"{chosen} cannot be run yet", hint=f"its runs would go to {Path(out or f'runs/{chosen}')}")
