"""`ckaudit lab run`: one training, recorded as any other."""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.output import progress, say
from ckaudit.errors import UsageError

EPILOG = """
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


def _names() -> list[str]:
    from ckaudit.lab.training_spec import names

    return names()


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A fault, a control or a healthy training of ckaudit lab list.",
        show_default=False,
        autocompletion=_names,
    ),
]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="0, 1, 2, 10 or 11.")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Run folder; without it runs/NAME.", show_default=False)]
Stop = Annotated[str, typer.Option("--stop", metavar="N", help="Last step, at least 1; without it, all.", show_default=False)]
Force = Annotated[
    bool, typer.Option("--force", help="Delete the run in DIR and record anew; a folder with any other file is still refused.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]


def command(name: Name, *, seed: Seed = "0", out: Out = "", stop: Stop = "", force: Force = False, quiet: Quiet = False) -> int:
    """Train one fault, one control or a healthy model on the CPU, and record it; needs the torch extra."""
    from ckaudit.lab.record import clear, record
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
        record(what, folder, stop=last, on_step=(lambda step: tick(step, total)) if tick else lambda _: None)
    if not quiet:
        say(f"recorded {folder}")
        say(f"next: ckaudit triage {folder}")
    return 0
