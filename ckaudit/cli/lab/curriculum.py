"""`ckaudit lab curriculum`: twelve experiments, each with one change and full observability."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.output import fit_to_stdout, say, write_text
from ckaudit.errors import UsageError
from ckaudit.reports.view import PLAIN

if TYPE_CHECKING:
    from ckaudit.lab.specs import Experiment

EPILOG = """
\b
Examples:
  ckaudit lab curriculum
  ckaudit lab curriculum EXP-4 --out runs/exp4
\b
Exit codes:
  0  trained, audited and told
  2  could not train: an unknown name, no PyTorch, a folder that is
     in use or cannot be written
"""


def _names() -> list[str]:
    from ckaudit.lab.specs import experiments

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
Out = Annotated[
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder for runs and pages: new, or with other experiments.")
]


def command(name: Name = "", *, out: Out = "runs/curriculum") -> int:
    """Run the experiments, or one of them, and print the page of each: what differs between trainings, and what to look at."""
    from ckaudit.lab.specs import experiments

    chosen = [_named(name)] if name else list(experiments().values())
    folder = Path(out)
    from ckaudit.lab.record import need, within_reach, writable

    with within_reach(folder):
        _refuse_what_is_in_use(chosen, folder)
    need("torch", "torch")
    writable(folder)
    from ckaudit.lab.curriculum import studies

    _, encoding = fit_to_stdout(PLAIN, drawn=True)
    say(f"{sum(len(experiment.arms) for experiment in chosen)} trainings in {folder}")
    for study in studies(chosen, folder):
        write_text(study.page.read_text(encoding="utf-8"), encoding)
        say(f"wrote {study.page}")
    return 0


def _refuse_what_is_in_use(chosen: "list[Experiment]", folder: Path) -> None:
    from ckaudit.lab.curriculum import in_the_way

    if not folder.exists():
        return
    there = in_the_way(chosen, folder) if folder.is_dir() else folder
    if there is not None:
        which = "" if there == folder else f": {there.relative_to(folder)} is there"
        raise UsageError(f"{folder} is in use{which}", hint="name an empty folder, or a new one: --out DIR")


def _named(word: str) -> "Experiment":
    """Return the experiment of a name or an id, in any case of letters, or raise `UsageError`."""
    from difflib import get_close_matches

    from ckaudit.lab.specs import experiments

    for experiment in experiments().values():
        if word.lower() in (experiment.name, experiment.id.lower()):
            return experiment
    ids = ", ".join(experiment.id for experiment in experiments().values())
    near = get_close_matches(word.lower(), list(experiments()), n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {ids}; ckaudit lab list 'EXP-*' says what they are"
    raise UsageError(f"unknown experiment {word!r}", hint=hint)
