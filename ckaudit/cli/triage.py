"""`ckaudit triage`: what is wrong, why, and what to try first."""

from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.gate import BaselineFile, Config, NoConfig, Update
from ckaudit.cli.options import AllowEmpty, FailOn, Format, Output, Require, TauSlices, Verbose
from ckaudit.cli.phases import Questions, phases
from ckaudit.cli.progress import progress
from ckaudit.errors import UsageError
from ckaudit.reports import FEW_FORMATS, FORMATS

EPILOG = """
\b
Examples:
  ckaudit triage runs/nano
  ckaudit triage runs/nano --step 500
  ckaudit triage runs/nano --questions
  ckaudit triage runs/nano --questions 1,4 --step 500
  ckaudit triage runs/nano --map loss=train/loss --format markdown
  ckaudit triage runs/canary --baseline known.json
  ckaudit triage runs/nano --event last
  ckaudit triage runs/nano --benchmark-drop --since 30000
\b
--event opens the black box of an event checkpoint: what happened in the
steps before. --benchmark-drop asks in strict order why a score fell: the
evaluation, the data, the model's behaviour, the architecture (SR-1 to SR-4);
a gate that fails counts as sev1. Both come as terminal, json or markdown.
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, nothing could be judged, or --require vital and a
     vital check could not judge
"""

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run folder, a checkpoint, or another program's log, such as a trainer_state.json (`ckaudit import --formats`).",
        show_default=False,
    ),
]
Step = Annotated[
    str,
    typer.Option("--step", metavar="N", help="Judge the run as it stood at step N; without it, at its end.", show_default=False),
]
Which = Annotated[
    str,
    typer.Option(
        "--run", metavar="WHICH", help="Of several runs in one source this one: its name or its number.", show_default=False
    ),
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
Event = Annotated[
    str,
    typer.Option(
        "--event", metavar="STEP|last", help="What happened before the event of that step, or the last one.", show_default=False
    ),
]
BenchmarkDrop = Annotated[
    bool, typer.Option("--benchmark-drop", help="Why did a benchmark fall? Four gates in strict order.", show_default=False)
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="STEP",
        help="With --benchmark-drop: since when it is worse; without it, since the largest fall of a recorded score.",
        show_default=False,
    ),
]

Pictures = Annotated[bool, typer.Option("--pictures/--no-pictures", help="Draw curves and bars on a screen.")]


def command(
    run: Run,
    *,
    step: Step = "",
    questions: Questions = "",
    event: Event = "",
    benchmark_drop: BenchmarkDrop = False,
    since: Since = "",
    format: Format = "terminal",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "",
    require: Require = "",
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    update_baseline: Update = False,
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    pictures: Pictures = True,
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    tau_slices: TauSlices = "",
    unit: options.Unit = None,
) -> int:
    """Name what is wrong with a run: since which step, where, the likeliest cause, and what to try first."""
    from ckaudit.cli.deliver import Request, deliver

    check_one_question(
        step=step, event=event, benchmark_drop=benchmark_drop, since=since, foreign=bool(map or which), baseline=baseline
    )
    request = Request(
        format=format,
        output=output,
        fail_on=options.severity(fail_on) if fail_on else None,
        allow_empty=allow_empty,
        require=options.one_of(require, ("vital",), "requirement") if require else None,
        verbose=verbose,
        pictures=pictures,
        base=options.base([run]),
        formats=FEW_FORMATS if event or benchmark_drop else FORMATS,
    )
    at, asked = options.step(step or None), phases(questions)
    choice = options.choice(map, which, unit=unit, tau_slices=tau_slices)
    from ckaudit.cli.gate import keep, limit, open_gate

    gate = open_gate("triage", config=config, no_config=no_config, baseline=baseline, update=update_baseline)
    if event or benchmark_drop:
        from msgspec.structs import replace

        request = replace(request, fail_on=limit(fail_on, gate))
    if event:
        from ckaudit.cli.autopsy import autopsy

        return autopsy(run, event, request, gate)
    if benchmark_drop:
        from ckaudit.cli.drop import benchmark_drop as ask

        return ask(run, request, gate, since=options.step(since or None, "--since"), choice=choice)
    from ckaudit.audit import triage

    with progress("reading") as tick:
        report = triage(Path(run), step=at, choice=choice, questions=asked, gate=gate, progress=tick)
    keep(report, gate)
    return deliver(report, request)


def check_one_question(*, step: str, event: str, benchmark_drop: bool, since: str, foreign: bool, baseline: str) -> None:
    """Raise `UsageError` where options ask for two things at once, or one has no meaning without another."""
    if event and benchmark_drop:
        raise UsageError("--event and --benchmark-drop are two questions", hint="ask one at a time")
    if since and not benchmark_drop:
        raise UsageError("--since says when a benchmark fell", hint="add --benchmark-drop")
    question = "--event" if event else "--benchmark-drop" if benchmark_drop else ""
    for option, given in (("--step", step), ("--baseline", baseline)):
        if question and given:
            raise UsageError(f"{option} has no meaning with {question}", hint="leave it away")
    if event and foreign:
        raise UsageError("--map and --run have no meaning with --event", hint="a log of another program has no event checkpoints")
