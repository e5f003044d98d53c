"""`ckaudit triage`: what is wrong, why, and what to try first; what happened before an event; why a benchmark fell."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.options import (
    AllowEmpty,
    FailOn,
    Format,
    Map,
    Output,
    Questions,
    Require,
    Run,
    Step,
    TauSlices,
    Verbose,
    Which,
    phases,
)
from ckaudit.cli.output import progress, say
from ckaudit.cli.policy_options import (
    BaselineFile,
    Config,
    Like,
    NoConfig,
    Update,
    failing_severity,
    hold_like,
    read_acceptance,
    write_baseline,
)
from ckaudit.errors import UsageError
from ckaudit.reports import FEW_FORMATS, FORMATS

if TYPE_CHECKING:
    from ckaudit.cli.deliver import OutputRequest
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.contract.schema.report import Report
    from ckaudit.policy.acceptance import AcceptanceCriteria


EPILOG = """
\b
Examples:
  ckaudit triage runs/nano
  ckaudit triage runs/nano --step 500
  ckaudit triage runs/nano --questions
  ckaudit triage runs/nano --questions 1,4 --step 500
  ckaudit triage runs/nano --map loss=train/loss --format markdown
  ckaudit triage runs/canary --baseline known.json
  ckaudit triage runs/new --like 'runs/good-*'
  ckaudit triage runs/nano --event last
  ckaudit triage runs/nano --benchmark-drop --since 30000
\b
--event opens the black box of an event checkpoint: what happened in the
steps before. --benchmark-drop checks in strict order why a score fell: the
evaluation, the data, the model's behaviour, the architecture (SR-1 to SR-4);
a gate that fails counts as sev1. Formats of both: terminal, json or markdown.
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, nothing could be judged, or --require vital and a
     vital check could not judge
"""

Event = Annotated[
    str,
    typer.Option(
        "--event", metavar="STEP|last", help="Show what preceded the event at this step, or the last event.", show_default=False
    ),
]
BenchmarkDrop = Annotated[
    bool, typer.Option("--benchmark-drop", help="Why did a benchmark score fall? Four gates in strict order.", show_default=False)
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="STEP",
        help="With --benchmark-drop: first step of the drop. Default: the largest fall of a recorded score.",
        show_default=False,
    ),
]

Pictures = Annotated[bool, typer.Option("--pictures/--no-pictures", help="Draw curves and bars on a terminal.")]


def command(
    run: Run,
    *,
    step: Step = "",
    questions: Questions = "",
    event: Event = "",
    benchmark_drop: BenchmarkDrop = False,
    since: Since = "",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "",
    require: Require = "",
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    like: Like = None,
    update_baseline: Update = False,
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    pictures: Pictures = True,
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    tau_slices: TauSlices = "",
    unit: options.Unit = None,
    save_map: options.SaveMap = False,
) -> int:
    """Show what is wrong with a run: since which step, where, the likeliest cause, and what to try first."""
    foreign = bool(map or which)
    check_one_question(
        step=step,
        questions=questions,
        event=event,
        benchmark_drop=benchmark_drop,
        since=since,
        foreign=foreign,
        baseline=baseline,
        like=like,
    )
    options.check_save_map(map, save=save_map)
    formats = FEW_FORMATS if event or benchmark_drop else FORMATS
    request = _requested(
        run, format, output, fail_on, require, formats, allow_empty=allow_empty, verbose=verbose, pictures=pictures
    )
    at, asked = options.step(step or None), phases(questions)
    import_options = options.import_options(map, which, unit=unit, tau_slices=tau_slices, config=config, no_config=no_config)
    criteria = read_acceptance("triage", config=config, no_config=no_config, baseline=baseline, update=update_baseline)
    if event or benchmark_drop:
        from msgspec.structs import replace

        request = replace(request, fail_on=failing_severity(fail_on, criteria))
    if event:
        return _autopsy(run, event, request, criteria)
    if benchmark_drop:
        return _benchmark_drop(
            run, request, criteria, since=options.step(since or None, "--since"), import_options=import_options
        )
    return _triage(
        run,
        request,
        hold_like(criteria, like, [run], import_options),
        step=at,
        questions=asked,
        import_options=import_options,
        save=save_map,
    )


def _requested(
    run: str,
    format: str,  # noqa: A002  what the option is called
    output: str,
    fail_on: str,
    require: str,
    formats: tuple[str, ...],
    *,
    allow_empty: bool,
    verbose: bool,
    pictures: bool,
) -> "OutputRequest":
    """Return the output request, or raise `UsageError`."""
    from ckaudit.cli.deliver import OutputRequest

    return OutputRequest(
        format=format,
        output=output,
        fail_on=options.severity(fail_on) if fail_on else None,
        allow_empty=allow_empty,
        require=options.checked_choice(require, ("vital",), "requirement") if require else None,
        verbose=verbose,
        pictures=pictures,
        base=options.base([run]),
        formats=formats,
    )


def _triage(
    run: str,
    request: "OutputRequest",
    criteria: "AcceptanceCriteria",
    *,
    step: int | None,
    questions: Collection[int],
    import_options: "ImportOptions",
    save: bool,
) -> int:
    """Show what is wrong with a run, and return the exit code."""
    from ckaudit.audit import triage
    from ckaudit.cli.deliver import deliver

    with progress("reading") as tick:
        report = triage(
            Path(run), step=step, import_options=import_options, questions=questions, criteria=criteria, progress=tick
        )
    write_baseline(report, criteria)
    code = deliver(report, _with_evidence_files(request, report, run) if request.format == "sarif" else request)
    options.keep_columns(import_options, run, save=save)
    return code


def _with_evidence_files(request: "OutputRequest", report: "Report", run: str) -> "OutputRequest":
    """Return a request with the files and lines of the evidence, which only SARIF can show."""
    from msgspec.structs import replace

    from ckaudit.audit.evidence_files import evidence_files

    findings = [*report.findings, *(suppressed.finding for suppressed in report.suppressed)]
    return replace(request, places=evidence_files(Path(run), findings))


def check_one_question(
    *,
    step: str,
    questions: str,
    event: str,
    benchmark_drop: bool,
    since: str,
    foreign: bool,
    baseline: str,
    like: Sequence[str] | None,
) -> None:
    """Raise `UsageError` if options exclude each other, or one requires another."""
    if event and benchmark_drop:
        raise UsageError("--event and --benchmark-drop are two questions", hint="ask one at a time")
    if questions and (event or benchmark_drop):
        other = "--event" if event else "--benchmark-drop"
        raise UsageError(f"--questions and {other} are two questions", hint="ask one at a time")
    if since and not benchmark_drop:
        raise UsageError("--since says when a benchmark fell", hint="add --benchmark-drop")
    question = "--event" if event else "--benchmark-drop" if benchmark_drop else ""
    for option, given in (("--step", step), ("--baseline", baseline), ("--like", like)):
        if question and given:
            raise UsageError(f"{option} has no meaning with {question}", hint="leave it away")
    if event and foreign:
        raise UsageError("--map and --run have no meaning with --event", hint="a log of another program has no event checkpoints")


def _autopsy(run: str, event: str, request: "OutputRequest", criteria: "AcceptanceCriteria") -> int:
    """Show what happened before an event, and return the exit code: 1 for severe findings of triage in its steps."""
    asked = None if event == "last" else options.step(event, "--event")
    from ckaudit.audit.autopsy import autopsy
    from ckaudit.cli.deliver import write_output
    from ckaudit.reports import render

    with progress("reading") as tick:
        opened = autopsy(Path(run), event=asked, criteria=criteria, progress=tick)
    write_output(lambda view: render(opened, request.format, view), request)
    failing = options.SEVERITIES[: options.SEVERITIES.index(request.fail_on or "sev1") + 1]
    return int(any(finding.severity in failing for finding in opened.findings))


def _benchmark_drop(
    run: str, request: "OutputRequest", criteria: "AcceptanceCriteria", *, since: int | None, import_options: "ImportOptions"
) -> int:
    """Show why a benchmark fell, and return the exit code."""
    from ckaudit.audit.drop import benchmark_drop
    from ckaudit.cli.deliver import write_output
    from ckaudit.reports import render

    with progress("reading") as tick:
        drop = benchmark_drop(Path(run), since=since, import_options=import_options, criteria=criteria, progress=tick)
    write_output(lambda view: render(drop, request.format, view), request)
    outcomes = {gate.outcome for gate in drop.gates}
    if "failed" in outcomes:  # counts as sev1: contain it quickly
        return int(request.fail_on != "sev0")
    if drop.gates and "passed" not in outcomes and not request.allow_empty:
        say("error: no gate could be judged")
        say("hint: --allow-empty accepts a report that judged nothing")
        return 2
    return 0
