"""`ckaudit triage`: what is wrong, why, and what to try first."""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.gate import BaselineFile, Config, NoConfig, Update
from ckaudit.cli.options import AllowEmpty, FailOn, Format, Output, Verbose
from ckaudit.cli.phases import Questions, phases
from ckaudit.cli.progress import progress

EPILOG = """
\b
Examples:
  ckaudit triage runs/nano
  ckaudit triage runs/nano --step 500
  ckaudit triage runs/nano --questions
  ckaudit triage runs/nano --questions 1,4 --step 500
  ckaudit triage runs/nano --map loss=train/loss --format markdown
  ckaudit triage runs/canary --baseline known.json
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing could be judged
"""

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run folder, a checkpoint, a Hugging Face trainer_state.json, or a CSV of scalars.",
        show_default=False,
    ),
]
Step = Annotated[
    str,
    typer.Option("--step", metavar="N", help="Judge the run as it stood at step N; without it, at its end.", show_default=False),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=COLUMN",
        help="Read NAME from COLUMN of a CSV, as in loss=train/loss; may be repeated.",
        show_default=False,
    ),
]


def command(
    run: Run,
    *,
    step: Step = "",
    questions: Questions = "",
    format: Format = "terminal",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "",
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    update_baseline: Update = False,
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    map: Map = None,  # noqa: A002  what the option is called
) -> int:
    """Name what is wrong with a run: since which step, where, the likeliest cause, and what to try first."""
    from ckaudit.cli.deliver import Request, deliver

    request = Request(
        format=format,
        output=output,
        fail_on=options.severity(fail_on) if fail_on else None,
        allow_empty=allow_empty,
        verbose=verbose,
        base=options.base([run]),
    )
    at, columns, asked = options.step(step or None), options.columns(map or []), phases(questions)
    from ckaudit.cli.gate import keep, open_gate

    gate = open_gate("triage", config=config, no_config=no_config, baseline=baseline, update=update_baseline)
    from ckaudit.audit import triage

    with progress("reading") as tick:
        report = triage(Path(run), step=at, columns=columns, questions=asked, gate=gate, progress=tick)
    keep(report, gate)
    return deliver(report, request)
