"""`ckaudit lab curriculum`: twelve experiments, each with one change and full observability."""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli.options import one_of
from ckaudit.cli.output import fitted, send
from ckaudit.cli.say import say
from ckaudit.errors import UsageError
from ckaudit.reports.view import PLAIN

EPILOG = """
\b
Examples:
  ckaudit lab curriculum
  ckaudit lab curriculum EXP-4 --out lab
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
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder for its runs and its page; without it runs.", show_default=False)
]


def command(name: Name = "", *, out: Out = "") -> int:
    """Run an experiment to its end and print its page: what differs between its trainings, and what to look at."""
    from ckaudit.lab.story import experiments

    known = experiments()
    view, encoding = fitted(PLAIN, drawn=True)
    if not name:
        from ckaudit.reports.lab.catalogue import on_screen

        send(on_screen({}, {}, known, view), encoding)
        return 0
    ids = {each.id: each.name for each in known.values()}
    chosen = known[ids.get(name.upper()) or one_of(name, list(known), "experiment")]
    folder = Path(out or "runs")
    if (folder / chosen.name).exists():
        raise UsageError(f"{folder / chosen.name} is there already", hint="delete it, or name another folder: --out DIR")
    from ckaudit.lab.record import need

    need("torch", "torch")
    from ckaudit.lab.curriculum import study

    folder.mkdir(parents=True, exist_ok=True)
    say(f"{len(chosen.arms)} trainings: {', '.join(chosen.arms)}")
    send(study(chosen, folder).page, encoding)
    say(f"its runs are in {folder / chosen.name}, its page is {folder / chosen.name}.md")
    return 0
