"""The command group of the lab, and the commands that need no cache: `ckaudit lab list`, `run` and `curriculum`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.lab import record, score, wild
from ckaudit.cli.options import checked_choice, format_option
from ckaudit.cli.output import fit_to_stdout, progress, say, write_text
from ckaudit.errors import UsageError
from ckaudit.reports import FEW_FORMATS
from ckaudit.reports.view import PLAIN

if TYPE_CHECKING:
    from ckaudit.lab.specs import Experiment

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
        help="Only matching names, or ids such as EXP-4, as in 'lr_*,healthy*'. Default: all.",
        show_default=False,
    ),
]
Format = Annotated[str, format_option(FEW_FORMATS)]


def build() -> typer.Typer:
    """Return the group of commands, with plain help like the others."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lab)
    app.command("list", epilog=LIST_EPILOG)(list_all)
    app.command("run", epilog=RUN_EPILOG)(run)
    app.command("record", epilog=record.EPILOG)(record.command)
    app.command("score", epilog=score.EPILOG)(score.command)
    app.command("wild", epilog=wild.EPILOG)(wild.command)
    app.command("curriculum", epilog=CURRICULUM_EPILOG)(curriculum)
    return app


def lab() -> None:
    """Train small models with one known fault each, and score the auditor on them."""


def list_all(pattern: Pattern = "", *, format: Format = "terminal") -> int:  # noqa: A002  what the option is called
    """List every fault with its label, healthy trainings, controls and experiments; needs no PyTorch."""
    checked_choice(format, FEW_FORMATS, "format")
    from ckaudit.lab.training_spec import catalogue
    from ckaudit.reports.lab.catalogue import render

    changes = catalogue(pattern)
    view, encoding = fit_to_stdout(PLAIN, drawn=format == "terminal")
    write_text(render(changes, format, view), encoding)
    return 0


# One training, recorded like any other.
RUN_EPILOG = """
\b
Examples:
  ckaudit lab run lr_too_high --out runs/x && ckaudit triage runs/x
  ckaudit lab run healthy --seed 10
  ckaudit lab run dead_relu --stop 100 --out runs/short
\b
Seeds 0, 1, 2 are the dev split, 10 and 11 the test split: each seed has its
own model, corpus and schedule. The label is not written into the run folder:
nothing there says which fault, if any, the training had.
\b
Exit codes:
  0  trained and recorded
  2  could not train or record: an unknown name, no PyTorch, a folder that is
     in use or cannot be written
"""


def _names_of_trainings() -> list[str]:
    from ckaudit.lab.training_spec import names

    return names()


Training = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A fault, a control or a healthy training of ckaudit lab list.",
        show_default=False,
        autocompletion=_names_of_trainings,
    ),
]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="0, 1, 2, 10 or 11.")]
RunFolder = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Run folder. Default: runs/NAME.", show_default=False)]
Stop = Annotated[str, typer.Option("--stop", metavar="N", help="Last step, at least 1. Default: all.", show_default=False)]
Force = Annotated[
    bool, typer.Option("--force", help="Delete the run in DIR and record anew; a folder with any other file is still refused.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and summary.")]


def run(
    name: Training, *, seed: Seed = "0", out: RunFolder = "", stop: Stop = "", force: Force = False, quiet: Quiet = False
) -> int:
    """Train one fault, one control or a healthy model on the CPU, and record it; needs the torch extra."""
    from ckaudit.lab.record import clear
    from ckaudit.lab.record import record as record_run
    from ckaudit.lab.training_spec import recipe

    what = recipe(name, options.step(seed, "--seed") or 0)
    last = options.step(stop or None, "--stop")
    if last == 0:
        raise UsageError("--stop 0 would train nothing", hint="the first step is 1: --stop 1 or more")
    folder = Path(out or f"runs/{name}")
    clear(folder, force=force)
    planned = what.change.plan(what.plan).last
    total = planned if last is None else min(last, planned)
    with progress("training step", quiet=quiet) as tick:
        record_run(what, folder, stop=last, on_step=(lambda step: tick(step, total)) if tick else lambda _: None)
    if not quiet:
        say(f"recorded {folder}")
        say(f"next: ckaudit triage {folder}")
    return 0


# Twelve experiments, each with one change and full observability.
CURRICULUM_EPILOG = """
\b
Examples:
  ckaudit lab curriculum
  ckaudit lab curriculum EXP-4 --out runs/exp4
\b
Exit codes:
  0  trained, audited and printed
  2  could not train: an unknown name, no PyTorch, a folder that is
     in use or cannot be written
"""


def _names_of_experiments() -> list[str]:
    from ckaudit.lab.specs import experiments

    return list(experiments())


Experiments = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        help="An experiment, or its number such as EXP-4. Default: all of them.",
        show_default=False,
        autocompletion=_names_of_experiments,
    ),
]
StudyFolder = Annotated[
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder for runs and pages: new, or with other experiments.")
]


def curriculum(name: Experiments = "", *, out: StudyFolder = "runs/curriculum") -> int:
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
    from ckaudit.lab.curriculum import blocking_path

    if not folder.exists():
        return
    blocking = blocking_path(chosen, folder) if folder.is_dir() else folder
    if blocking is not None:
        which = "" if blocking == folder else f": {blocking.relative_to(folder)} is there"
        raise UsageError(f"{folder} is in use{which}", hint="name an empty folder, or a new one: --out DIR")


def _named(word: str) -> "Experiment":
    """Return the experiment of a name or an id, in any case, or raise `UsageError`."""
    from difflib import get_close_matches

    from ckaudit.lab.specs import experiments

    for experiment in experiments().values():
        if word.lower() in (experiment.name, experiment.id.lower()):
            return experiment
    ids = ", ".join(experiment.id for experiment in experiments().values())
    near = get_close_matches(word.lower(), list(experiments()), n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {ids}; ckaudit lab list 'EXP-*' says what they are"
    raise UsageError(f"unknown experiment {word!r}", hint=hint)
