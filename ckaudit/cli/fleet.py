"""`ckaudit fleet`: many runs at once; which are ill, of what, and what they have in common."""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.options import AllowEmpty, FailOn, Map, Require, TauSlices, Verbose
from ckaudit.cli.output import check_folder, fit_to_stdout, open_output, progress, say, write_text
from ckaudit.cli.policy_options import Config, Like, NoConfig, failing_severity, read_acceptance
from ckaudit.errors import CkauditError, UsageError
from ckaudit.reports import RENDERERS, render
from ckaudit.reports.view import View

if TYPE_CHECKING:
    from ckaudit.contract.schema.fleet import Fleet, FleetRun
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.fleet.fleet import Progress
    from ckaudit.policy.acceptance import AcceptanceCriteria

FORMATS = tuple(RENDERERS["Fleet"])
DATASET = "ckaudit-fleet"
SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
AGO = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
MAX_LETTERS = 60
EPILOG = """
\b
Examples:
  ckaudit fleet 'runs/*'
  ckaudit fleet 'runs/**/seed-?' other/log.csv --jobs 16
  ckaudit fleet 'runs/*' --group-by config.lr,git.commit
  ckaudit fleet 'runs/*' --since 7d --changed-only --format json
  ckaudit fleet 'runs/*' --like 'good/*' --timeout 60
  ckaudit fleet 'runs/*' --html overview.html --reports reports/
  ckaudit fleet query "SELECT cause, count(*) FROM runs GROUP BY ALL"
\b
Rows of all runs are kept as Parquet tables in --output, batch by batch: a
stopped audit continues where it ended, and a run whose files have not changed
is not read again. `fleet query` queries these tables with SQL.
\b
Exit codes:
  0  no run has a finding at or above --fail-on
  1  a run has such a finding; an unreadable run among others counts as sev1
  2  no run could be read, the audit of a run failed or took too long, or no
     vital check of a run could judge; or --require vital, and a vital check
     of a run could not judge
"""

Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATTERN...", help="Run folders, logs, folders of them, or patterns in quotes.", show_default=False),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the data set.")]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        "--group-by",
        metavar="FACT,...",
        help="Group runs by facts of run.json, as in config.lr,git.commit; may be repeated.",
        show_default=False,
    ),
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="DATE|7d",
        help="Only runs written since a date (2026-01-31) or in the last 30m, 24h, 7d, 2w.",
        show_default=False,
    ),
]
ChangedOnly = Annotated[bool, typer.Option("--changed-only", help="Only runs that are new or changed since their last audit.")]
Jobs = Annotated[str, typer.Option("--jobs", "-j", metavar="N", help="Processes. Default: one per core.", show_default=False)]

Timeout = Annotated[
    str,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Stop the audit of a run that takes longer; continue with the others.",
        show_default=False,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ADDRESS",
        help="Audit on a cluster: dask://HOST:8786 or ray://HOST:10001. Default: processes of this machine.",
        show_default=False,
    ),
]
Html = Annotated[
    str, typer.Option("--html", metavar="FILE", help="Also write the overview as one HTML file.", show_default=False)
]
Reports = Annotated[
    str,
    typer.Option(
        "--reports",
        metavar="DIR",
        help="With --html: write a report of each unhealthy run to DIR and link to it.",
        show_default=False,
    ),
]


def command(
    patterns: Patterns = None,
    *,
    group_by: GroupBy = None,
    since: Since = "",
    changed_only: ChangedOnly = False,
    format: Annotated[str, options.format_option(FORMATS)] = "terminal",  # noqa: A002  what the option is called
    output: Output = DATASET,
    jobs: Jobs = "",
    timeout: Timeout = "",
    engine: Engine = "",
    html: Html = "",
    reports: Reports = "",
    fail_on: FailOn = "",
    require: Require = "",
    like: Like = None,
    config: Config = "",
    no_config: NoConfig = False,
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    map: Map = None,  # noqa: A002  what the option is called
    tau_slices: TauSlices = "",
    unit: options.Unit = None,
) -> int:
    """Audit many runs and rank them: the worst first, with the likeliest cause, what to try first, and shared facts."""
    if not patterns:
        raise UsageError("no run was named", hint="ckaudit fleet 'runs/*'")
    options.checked_choice(format, FORMATS, "format")
    check_page(html, reports)
    required = options.checked_choice(require, ("vital",), "requirement") if require else None
    import_options = options.import_options(map, "", unit=unit, tau_slices=tau_slices, config=config, no_config=no_config)
    criteria = read_acceptance("triage", config=config, no_config=no_config, baseline="", update=False)
    from ckaudit.fleet.engines import engine_at
    from ckaudit.fleet.fleet import FleetRequest, audit_fleet

    request = FleetRequest(
        patterns=patterns,
        folder=Path(output),
        import_options=import_options,
        criteria=criteria,
        since=moment(since, now=time()) if since else 0.0,
        changed_only=changed_only,
        like=like or (),
        group_by=[name.strip() for word in group_by or () for name in word.split(",") if name.strip()],
    )
    limit = options.seconds(timeout, "--timeout", allow_zero=False) if timeout else None
    chosen = engine_at(engine, workers=workers(jobs), seconds=limit)
    with progress_bar() as report_progress:
        fleet = audit_fleet(request, chosen, progress=report_progress)
    view, encoding = fit_to_stdout(View(verbose=verbose), drawn=format == "terminal")
    write_text(render(fleet, format, view), encoding)
    write_page(fleet, html, reports, import_options, criteria)
    return _exit_code(fleet, criteria, fail_on, required, allow_empty=allow_empty)


def _exit_code(fleet: "Fleet", criteria: "AcceptanceCriteria", fail_on: str, required: str | None, *, allow_empty: bool) -> int:
    """Return the exit code, and print the reason if something could not be judged."""
    from ckaudit.reports.outcome import fleet_outcome

    needed = required or (criteria.policy.base.require if criteria.policy else None)
    reached = fleet_outcome(fleet, fail_on=failing_severity(fail_on, criteria), require=needed, allow_empty=allow_empty)
    if reached.reason:
        say(f"error: {reached.reason}")
        say("hint: --allow-empty accepts runs in which nothing could be judged" if reached.is_empty else "")
    return reached.code


def moment(word: str, *, now: float) -> float:
    """Return the Unix time of a word such as 7d or 2026-01-31; a time without a zone is local.

    >>> moment("2h", now=10_000), moment("1970-01-02T00:00:00+00:00", now=0)
    (2800.0, 86400.0)
    """
    if ago := AGO.fullmatch(word):
        return float(now - int(ago[1]) * SECONDS[ago[2]])
    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError, OSError):
        today = datetime.fromtimestamp(now, UTC).date().isoformat()
        raise UsageError(f"--since {word!r} is no time", hint=f"write it like {today}, 7d, 24h or 30m") from None


def workers(word: str) -> int | None:
    """Return the number of processes in a word, None for an empty one.

    Raises:
        UsageError: If it is no integer from 1 on.
    """
    if not word:
        return None
    if not (word.isascii() and word.isdecimal() and 1 <= int(word) <= 1024):
        raise UsageError(f"--jobs {word!r} is no number of processes", hint="write it as digits from 1 to 1024, such as --jobs 8")
    return int(word)


@contextmanager
def progress_bar() -> "Iterator[Progress | None]":
    """Yield a function to call with finished sources, all sources, and new rows; None if standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("auditing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[ill]:,} ill"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, ill = bar.add_task("", total=None, ill=0), 0

        def report_progress(done: int, total: int, rows: "Sequence[FleetRun]") -> None:
            nonlocal ill
            ill += sum(row.is_ill for row in rows)
            bar.update(task, completed=done, total=total, ill=ill)

        yield report_progress


# The overview as a file, with the reports of ill runs beside it.
def check_page(html: str, reports: str) -> None:
    """Raise before the work if a page could not be written.

    Raises:
        UsageError: If reports are requested without an overview, or a path is not writable.
        CkauditError: If a library is missing.
    """
    if reports and not html:
        raise UsageError("--reports without --html: nothing would link to them", hint="name a file too: --html overview.html")
    from ckaudit.cli.report import check_libraries, check_replaceable

    if html:
        check_folder(html)
        check_replaceable(Path(html))
    if reports:
        check_libraries("html")
        if Path(reports).exists() and not Path(reports).is_dir():
            raise UsageError(f"--reports {reports} is no folder", hint="name another one")


def write_page(fleet: "Fleet", html: str, reports: str, import_options: "ImportOptions", criteria: "AcceptanceCriteria") -> None:
    """Write the overview, after the reports that it links to; existing reports that are still valid are kept."""
    if not html:
        return
    from ckaudit.reports.html.fleet import page
    from ckaudit.wording import plural

    links: dict[str, str] = {}
    if reports:
        ill = [run for run in fleet.runs if run.is_ill]
        links = _write_reports(ill, Path(reports), Path(html).parent, import_options, criteria)
    with open_output(html) as stream:
        stream.write(page(fleet, links).encode(errors="backslashreplace"))
    say(f"wrote {html}" + (f", and {plural(len(links), 'report')} in {reports}" if reports else ""))


def _write_reports(
    runs: "list[FleetRun]", folder: Path, beside: Path, import_options: "ImportOptions", criteria: "AcceptanceCriteria"
) -> dict[str, str]:
    """Write a report for each run, and return the links from the overview; a failure costs only its own report."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CkauditError(f"cannot make {folder}: {error.strerror}", hint="choose another --reports") from None
    links = {}
    with progress("reports") as tick:
        for done, run in enumerate(runs):
            if tick is not None:
                tick(done, len(runs))
            file = folder / file_name(run)
            try:
                if not file.is_file():
                    _write_report(run, file, import_options, criteria)
            except CkauditError as error:
                say(f"note: no report of {run.run}: {error}")
            else:
                links[run.run] = Path(os.path.relpath(file, beside)).as_posix()
    return links


def _write_report(run: "FleetRun", file: Path, import_options: "ImportOptions", criteria: "AcceptanceCriteria") -> None:
    from msgspec.structs import replace

    from ckaudit.cli.report import draw, drawn, judge
    from ckaudit.remote.addresses import with_addresses
    from ckaudit.remote.mirror import local_copy

    which = run.run.removeprefix(f"{run.source}#") if run.source else import_options.run
    judged = judge(local_copy(run.source or run.run), None, replace(import_options, run=which), criteria)
    content = drawn("html", *with_addresses((judged.report, draw(judged)))).content
    with open_output(str(file)) as stream:
        stream.write(content)


def file_name(run: "FleetRun") -> str:
    """Return the file name of a report: the name of the run with safe characters, and a key of its state."""
    words = UNSAFE.sub("-", run.run).strip("-.")[-MAX_LETTERS:].lstrip("-.")
    state = hashlib.blake2b(f"{run.run}\n{run.fingerprint}".encode(errors="replace"), digest_size=5).hexdigest()
    return f"{words or 'run'}-{state}.html"
