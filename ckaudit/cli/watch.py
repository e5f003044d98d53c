"""`ckaudit watch`: the same verdicts while a run trains."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckaudit.cli import options
from ckaudit.cli.options import Map, Require, Verbose, Which
from ckaudit.cli.output import redirect_to_devnull, say
from ckaudit.cli.policy_options import BaselineFile, Config, Like, NoConfig
from ckaudit.cli.watch_many import are_many
from ckaudit.errors import CkauditError, UsageError

if TYPE_CHECKING:
    from ckaudit.contract.schema.watch import WatchEvent
    from ckaudit.reports.view import View
    from ckaudit.watch.actions import Act, Worker
    from ckaudit.watch.many_runs import ManyRuns
    from ckaudit.watch.prometheus import Exporter
    from ckaudit.watch.rounds import WatchRounds


FORMATS = ("panel", "text", "jsonl")
EPILOG = """
\b
Examples:
  ckaudit watch runs/nano
  ckaudit watch runs/a runs/b --webhook https://chat.example/hook
  ckaudit watch runs/nano --until sev0 --exec "scancel 4711"
  ckaudit watch log.csv --map loss=train/loss
  ckaudit watch 's3://bucket/runs/*' --prometheus :9464
  python train.py & ckaudit watch runs/nano --wait 600 --until sev0 || kill $!
\b
A finding is reported once, and again if it becomes more severe. --exec runs
its command without a shell for each finding, stall or missing rank. The input
of the command is the event as JSON (ck.watch.v1); the main parts are in
CKAUDIT_RUN, CKAUDIT_STEP, CKAUDIT_SEVERITY, CKAUDIT_CODE, CKAUDIT_WHERE,
CKAUDIT_CAUSE, CKAUDIT_MESSAGE.
With --until, --exec and --webhook get only events of that severity or above.
\b
A quoted pattern or an address stands for all runs there, also future ones:
they are listed every 30 s, and new or changed runs are judged.
\b
Exit codes:
  0    all runs ended, and no finding was as severe as --until
  1    a finding was as severe as --until
  2    there is nothing to watch; or --require vital, and a vital check of a
       run that ended could not judge
  130  interrupted
"""

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN...", help="Run folders, or logs of other programs, growing or not; patterns, addresses.", show_default=False
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar="SEVERITY", help="Exit with 1 at a finding this severe: sev0, sev1 or sev2.", show_default=False
    ),
]
Exec = Annotated[
    str, typer.Option("--exec", metavar="CMD", help="Run CMD for each finding, stall or missing rank.", show_default=False)
]
Webhook = Annotated[
    str, typer.Option("--webhook", metavar="URL", help="Post each event as JSON to URL, http or https.", show_default=False)
]
StallAfter = Annotated[
    str,
    typer.Option(
        "--stall-after",
        metavar="SECONDS",
        help="Time without a line that is a stall. Default: 20 times the usual, 3 times the longest of late, at least 30.",
        show_default=False,
    ),
]
Wait = Annotated[
    str, typer.Option("--wait", metavar="SECONDS", help="Time to wait for runs that do not exist yet.", show_default=False)
]
Every = Annotated[
    str,
    typer.Option(
        "--every", metavar="SECONDS", help="Interval for listing patterns and addresses. Default: 30.", show_default=False
    ),
]
Prometheus = Annotated[
    str,
    typer.Option(
        "--prometheus",
        metavar="FILE|[HOST]:PORT",
        help="Keep the state of the runs in FILE, or serve it at PORT, in the text format of Prometheus.",
        show_default=False,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        show_default=False,
        help="panel, text or jsonl. Default: panel on a terminal, text elsewhere.",
        autocompletion=lambda: list(FORMATS),
    ),
]


def command(
    runs: Runs = None,
    *,
    until: Until = "",
    exec: Exec = "",  # noqa: A002  what the option is called
    webhook: Webhook = "",
    stall_after: StallAfter = "",
    wait: Wait = "",
    every: Every = "",
    prometheus: Prometheus = "",
    format: Format = "",  # noqa: A002  what the option is called
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    like: Like = None,
    verbose: Verbose = False,
    require: Require = "",
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
) -> int:
    """Follow growing runs: report each new finding once, show a live panel and stalls, and stop at a severe finding."""
    if not runs:
        raise UsageError("no run was named", hint="ckaudit watch RUN...")
    stop_severity = options.severity(until) if until else None
    required = bool(require and options.checked_choice(require, ("vital",), "requirement"))
    has_many, terminal = are_many(runs), sys.stdout.isatty()
    shown = options.checked_choice(format, FORMATS, "format") if format else "panel" if terminal and not has_many else "text"
    if shown == "panel" and not terminal:
        raise UsageError("--format panel needs a terminal", hint="write text or jsonl to a file or a pipe")
    after = options.seconds(stall_after, "--stall-after") if stall_after else None
    patience, pause = options.seconds(wait or "0", "--wait"), options.seconds(every or "30", "--every")
    from ckaudit.cli.policy_options import hold_like, read_acceptance

    criteria = read_acceptance("triage", config=config, no_config=no_config, baseline=baseline, update=False)
    vital = required or bool(criteria.policy and criteria.policy.base.require)
    workers, import_options = _workers(exec, webhook), options.import_options(map, which, config=config, no_config=no_config)
    criteria = hold_like(criteria, like, runs, import_options)
    settings: dict[str, Any] = {
        "criteria": criteria,
        "until": stop_severity,
        "stall_after": after,
        "notes": verbose,
        "import_options": import_options,
    }
    rounds = (_many if has_many else _few)([*dict.fromkeys(runs)], patience, pause, {**settings, "require_vital": vital})
    exporter = _exporter(prometheus)
    return _watch(rounds, shown, workers, stop_severity, exporter)


def _few(runs: list[str], patience: float, _every: float, settings: dict[str, Any]) -> "WatchRounds":
    from ckaudit.watch.rounds import WatchRounds, wait_for

    paths = [Path(run) for run in runs]
    wait_for(paths, patience)
    return WatchRounds(paths, **settings)


def _many(runs: list[str], patience: float, every: float, settings: dict[str, Any]) -> "ManyRuns":
    from ckaudit.cli.watch_many import sources_of
    from ckaudit.watch.many_runs import ManyRuns, WatchOptions

    sources = sources_of(
        runs, criteria=settings["criteria"], import_options=settings["import_options"], patience=patience, every=every
    )
    return ManyRuns(sources, WatchOptions(every=every, **settings))


def _exporter(where: str) -> "Exporter | None":
    if not where:
        return None
    from ckaudit.cli.inputs import refuse_inputs
    from ckaudit.watch.prometheus import Exporter

    refuse_inputs(Path(where))
    return Exporter(where, _warn)


def _workers(line: str, url: str) -> "list[Worker]":
    from ckaudit.watch.actions import Worker, command, webhook

    wanted: list[tuple[str, Callable[[str], Act], str]] = [("--exec", command, line), ("--webhook", webhook, url)]
    acts = [(option, make(word)) for option, make, word in wanted if word]
    return [Worker(option, act, _warn) for option, act in acts]


def _warn(sentence: str) -> None:
    say(f"warning: {sentence}")


def _watch(
    rounds: "WatchRounds | ManyRuns", shown: str, workers: "list[Worker]", until: str | None, exporter: "Exporter | None"
) -> int:
    """Watch until there is a reason to stop, and summarise."""
    stop_rank = options.SEVERITIES.index(until) if until else len(options.SEVERITIES)

    def handle(event: "WatchEvent") -> None:
        if event.severity is not None and options.SEVERITIES.index(event.severity) <= stop_rank:
            for worker in workers:
                worker.put(event)

    def export() -> None:
        if exporter is not None:
            exporter.update(rounds.snapshots)

    try:
        if shown == "panel":
            return _live(rounds, handle, export)
        stop_unread = not workers and until is None and exporter is None
        return rounds.run_until_end(_all_of(_printer(shown, stop_unread=stop_unread), handle), after_poll=export)
    except OutputClosedError:
        return 0
    finally:
        if exporter is not None:
            exporter.update(rounds.snapshots, at_once=True)
            exporter.close()
        for worker in workers:
            worker.finish(FINISH_SECONDS)
        _sum_up(rounds)


FINISH_SECONDS = 75.0  # seconds for unfinished commands and webhooks: more than one of each may take


class OutputClosedError(Exception):
    """The reader of standard output has closed it, and the watch has no other output."""


def _all_of(*sayers: "Callable[[WatchEvent], None]") -> "Callable[[WatchEvent], None]":
    def say_all(event: "WatchEvent") -> None:
        for sayer in sayers:
            sayer(event)

    return say_all


def _printer(shown: str, *, stop_unread: bool) -> "Callable[[WatchEvent], None]":
    """Return a function that writes an event to standard output at once."""
    from ckaudit.cli.output import fit_to_stdout
    from ckaudit.reports.terminal.watch import event_lines
    from ckaudit.reports.view import View

    view, encoding = fit_to_stdout(View(), drawn=shown == "text")

    causes: dict[str, str] = {}

    def write(event: "WatchEvent") -> None:
        if shown == "jsonl":
            import msgspec

            data = msgspec.json.encode(event) + b"\n"
        else:
            again = event.likely is not None and causes.get(event.run) == event.likely.cause
            if event.likely is not None:
                causes[event.run] = event.likely.cause
            data = (event_lines(event, view, with_cause=not again) + "\n").encode(encoding, "backslashreplace")
        _write_to_stdout(data, stop_unread=stop_unread)

    return write


def _write_to_stdout(data: bytes, *, stop_unread: bool) -> None:
    """Write data at once; if nobody reads it, raise or continue silently."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        redirect_to_devnull(sys.stdout)
        unread = isinstance(error, BrokenPipeError)
        if stop_unread:
            raise (OutputClosedError if unread else CkauditError(f"cannot write to standard output: {error.strerror}")) from None
        say("" if unread else f"note: cannot write to standard output: {error.strerror}; the watch goes on")


def _sum_up(rounds: "WatchRounds | ManyRuns") -> None:
    """Print a summary to standard error, a line for each run."""
    for name, alerts in rounds.alerts.items():
        counts = {word: sum(alert.severity == word for alert in alerts) for word in options.SEVERITIES}
        counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        step = next((alert.step for alert in reversed(alerts) if alert.step is not None), None)
        vital = rounds.vital.get(name)
        limits = f"; {vital.limits}" if vital and vital.limits else ""
        nothing = "no illness seen" if limits else "nothing found"
        say(f"{name}: {counted or nothing}" + ("" if step is None else f", last told at step {step}") + limits)
        say(f"to judge more: {vital.to_judge_more}" if limits and vital and vital.to_judge_more else "")


DRAWING_SECONDS = 0.95  # seconds between two drawings


class _Screen:
    """The terminal's alternate screen, on which a panel of the runs is drawn once a second."""

    def __init__(self, rounds: "WatchRounds | ManyRuns") -> None:
        from rich.console import Console
        from rich.live import Live

        self._rounds = rounds
        self._console = Console(file=sys.stdout, highlight=False, markup=False)
        self._drawn = float("-inf")
        self.area = Live(console=self._console, screen=True, auto_refresh=False)

    @property
    def view(self) -> "View":
        """What the screen can currently show."""
        from ckaudit.reports.terminal.screen_text import terminal_view
        from ckaudit.reports.view import View

        return terminal_view(View(), sys.stdout, os.environ)

    def draw(self) -> None:
        """Draw the panel, unless it was just drawn."""
        from rich.text import Text

        from ckaudit.reports.terminal.watch import panel

        if monotonic() - self._drawn < DRAWING_SECONDS:
            return
        self._drawn = monotonic()
        lines = panel(self._rounds.snapshots(), self.view._replace(width=self._console.width), self._console.height - 1)
        self.area.update(Text.from_ansi("\n".join(lines)), refresh=True)


def _live(rounds: "WatchRounds | ManyRuns", handle: "Callable[[WatchEvent], None]", export: Callable[[], None]) -> int:
    """Watch with a panel; the findings are printed when it ends, so that they stay visible.

    Args:
        rounds: The runs.
        handle: Also gets each event.
        export: Also called after each poll.
    """
    events: list[WatchEvent] = []
    screen = _Screen(rounds)

    def keep(event: "WatchEvent") -> None:
        events.append(event)
        handle(event)

    def show() -> None:
        export()
        screen.draw()

    with screen.area:
        try:
            return rounds.run_until_end(keep, after_poll=show)
        finally:
            screen.area.stop()
            _print_findings(events, screen.view)


def _print_findings(events: "Iterable[WatchEvent]", view: "View") -> None:
    from ckaudit.reports.terminal.watch import event_lines

    for event in events:
        if event.severity is not None:
            sys.stdout.write(event_lines(event, view) + "\n")
    sys.stdout.flush()
