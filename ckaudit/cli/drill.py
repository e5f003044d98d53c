"""`ckaudit drill`: injected faults in the user's own training, in separate processes, and which of them are found."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.lab.record import count
from ckaudit.cli.lab.wild import seed_number
from ckaudit.cli.options import checked_choice, format_option, seconds
from ckaudit.cli.output import check_folder, fit_to_stdout, progress, say, write_text
from ckaudit.errors import UsageError
from ckaudit.reports import FEW_FORMATS

if TYPE_CHECKING:
    from ckaudit.lab.drill.outcomes import DrillReport
    from ckaudit.lab.drill.trainings import DrillPlan, Trained

EPILOG = """
\b
Examples:
  ckaudit drill -- python train.py --config small.yaml
  ckaudit drill --faults matrix_zeroed,rate_raised -- python train.py
  ckaudit drill --list
\b
The command must train with ckaudit's Recorder, or the RecorderCallback of a
trainer. It runs once for each fault and twice without a fault, and ends by
itself after --steps steps. The drill records into its own folder instead of
the one that the program names; your run folders are not touched. The program
still writes its other files, such as its own checkpoints: it can check for
CKAUDIT_DRILL in the environment, and write them elsewhere. Weights & Biases
and Comet are switched off, unless WANDB_MODE or COMET_MODE is set.
\b
Exit codes:
  0  every fault with an effect was found, and the healthy trainings had no
     findings
  1  a fault was missed, or a healthy training had a finding
  2  could not drill: the command fails, or creates no Recorder
"""
MIN_STEPS = 20  # steps: below, hardly any check has enough points
SETTINGS = {"allow_interspersed_args": False}
"""All words after the command belong to it."""


def _completed(incomplete: str) -> list[str]:
    from ckaudit.recorder.drill.settings import KINDS

    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in KINDS if name not in before.split(",")]


Command = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", help="The command that trains.", show_default=False)]
Faults = Annotated[
    str,
    typer.Option(
        "--faults",
        metavar="A,B,C",
        help="Faults to inject. Default: the usual ones of --list.",
        show_default=False,
        autocompletion=_completed,
    ),
]
List = Annotated[bool, typer.Option("--list", help="List the faults and exit.")]
Steps = Annotated[str, typer.Option("--steps", metavar="N", help="Steps of each training.")]
Onset = Annotated[
    str, typer.Option("--onset", metavar="N", help="First step of sudden faults. Default: the middle + 1.", show_default=False)
]
Strength = Annotated[str, typer.Option("--strength", metavar="X", help="Strength of the faults, 0 to 1.")]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="Random seed of the faults; the program keeps its own.")]
Jobs = Annotated[str, typer.Option("--jobs", "-j", metavar="N", help="Parallel trainings.")]
Wait = Annotated[str, typer.Option("--wait", metavar="SECONDS", help="Time for a program to create its Recorder.")]
Keep = Annotated[
    str, typer.Option("--keep", metavar="DIR", help="Keep run folders and output of the trainings in DIR.", show_default=False)
]
Bundle = Annotated[
    str,
    typer.Option(
        "--bundle",
        metavar="FILE",
        help="Write flagged healthy trainings and missed faults to FILE, without names, to report them.",
        show_default=False,
    ),
]
Format = Annotated[str, format_option(FEW_FORMATS)]


def command(
    command: Command = None,
    *,
    faults: Faults = "",
    list: List = False,  # noqa: A002  what the option is called
    steps: Steps = "120",
    onset: Onset = "",
    strength: Strength = "0.5",
    seed: Seed = "0",
    jobs: Jobs = "1",
    wait: Wait = "600",
    keep: Keep = "",
    bundle: Bundle = "",
    format: Format = "terminal",  # noqa: A002  what the option is called
) -> int:
    """Inject faults into your own training, apart from every real run, and show which are found, when and as what."""
    checked_choice(format, FEW_FORMATS, "format")
    if list:
        from ckaudit.reports.lab.drill import catalogue
        from ckaudit.reports.view import View

        view, encoding = fit_to_stdout(View(), drawn=format == "terminal")
        write_text(catalogue(format, view), encoding)
        return 0
    plan = _plan(command or (), faults, steps=steps, onset=onset, strength=strength, seed=seed, jobs=jobs, wait=wait)
    check_folder(bundle)
    if keep:
        from ckaudit.lab.record import writable

        root = Path(keep)
        if root.is_dir() and any(root.iterdir()):
            raise UsageError(f"--keep: {keep} is not empty", hint="name a new folder")
        writable(root, option="--keep")
        return _drill(plan, root, bundle, format)
    with tempfile.TemporaryDirectory(prefix="ckaudit-drill-") as root_name:
        return _drill(plan, Path(root_name), bundle, format)


def _plan(
    words: Sequence[str], faults: str, *, steps: str, onset: str, strength: str, seed: str, jobs: str, wait: str
) -> "DrillPlan":
    """Return the plan of the drill, or raise `UsageError`."""
    from ckaudit.lab.drill.trainings import DrillPlan
    from ckaudit.recorder.drill.settings import KINDS

    if not words:
        raise UsageError("no command was given", hint="write it behind two dashes: ckaudit drill -- python train.py")
    names = [name.strip() for name in faults.split(",") if name.strip()]
    for name in names:
        checked_choice(name, [*KINDS], "fault")
    length = count(steps, "--steps")
    if length < MIN_STEPS:
        raise UsageError(f"--steps {steps} shows nothing: a training is judged from {MIN_STEPS} steps on", hint="try --steps 120")
    first = count(onset, "--onset") if onset else length // 2 + 1  # not a step with a regular checkpoint
    if first >= length:
        raise UsageError(
            f"--onset {first} lies at or after the last of {length} steps", hint="choose an earlier one, or more --steps"
        )
    return DrillPlan(
        command=tuple(words),
        faults=tuple(dict.fromkeys(names)) or tuple(name for name, kind in KINDS.items() if kind.usual),
        steps=length,
        onset=first,
        strength=share(strength, "--strength"),
        seed=seed_number(seed),
        jobs=count(jobs, "--jobs"),
        wait=seconds(wait, "--wait"),
    )


def share(word: str, option: str) -> float:
    """Return a number from 0 to 1, or raise `UsageError`."""
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise UsageError(f"{option} {word!r} is no number from 0 to 1", hint=f"write it like {option} 0.5")
    return number


def _drill(plan: "DrillPlan", root: Path, bundle: str, format: str) -> int:  # noqa: A002  what the option is called
    """Train, judge and report; return the exit code."""
    from ckaudit.lab.drill.outcomes import judged
    from ckaudit.lab.drill.trainings import train_all
    from ckaudit.reports import render
    from ckaudit.reports.view import View

    say(f"{len(plan.names)} trainings of {plan.steps} steps" if sys.stderr.isatty() else "")
    with progress("training: step") as tick:
        trained = train_all(plan, root, on_step=tick)
    with progress("judging: training") as tick:
        report = judged(plan, trained, progress=tick)
    view, encoding = fit_to_stdout(View(), drawn=format == "terminal")
    write_text(render(report, format, view), encoding)
    if bundle:
        _bundle(report, trained, Path(bundle))
    return int(not report.is_clean)


def _bundle(report: "DrillReport", trained: "Sequence[Trained]", path: Path) -> None:
    from ckaudit.lab.drill.bundle import write_bundle

    names = write_bundle(report, trained, path)
    kept = f"wrote {path}: {', '.join(names)} without names, {path.stat().st_size / 1000:.0f} KB" if names else ""
    say(kept or f"nothing to report: {path} was not written")
