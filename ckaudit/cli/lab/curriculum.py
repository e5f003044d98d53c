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
        help="An experiment, or its number such as EXP-4; without one, all of them.",
        show_default=False,
        autocompletion=_names,
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Empty or new folder for runs and pages.")]


def command(name: Name = "", *, out: Out = "runs/curriculum") -> int:
    """Run the experiments, or one of them, and print the page of each: what differs between trainings, and what to look at."""
    from ckaudit.lab.story import experiments

    known = experiments()
    ids = {each.id: each.name for each in known.values()}
    chosen = [known[ids.get(name.upper()) or one_of(name, list(known), "experiment")]] if name else list(known.values())
    folder = Path(out)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder} is in use", hint="name an empty folder, or a new one: --out DIR")
    from ckaudit.lab.record import need

    need("torch", "torch")
    from ckaudit.lab.curriculum import studies

    _, encoding = fitted(PLAIN, drawn=True)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{sum(len(each.arms) for each in chosen)} trainings in {folder}")
    for study in studies(chosen, folder):
        send(study.page.read_text(encoding="utf-8"), encoding)
        say(f"wrote {study.page}")
    return 0
