"""`ckaudit report`: one HTML file with the verdict and the pictures, that opens without a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ckaudit.cli import options
from ckaudit.cli.gate import BaselineFile, Config, NoConfig
from ckaudit.cli.options import AllowEmpty, FailOn, Map, Run, Step, TauSlices, Which
from ckaudit.cli.output import progress
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from ckaudit.contract.schema.import_options import Choice
    from ckaudit.contract.schema.panels import Panels
    from ckaudit.contract.schema.report import Report
    from ckaudit.policy.gate import Gate
    from ckaudit.run.run import Run as Read

SUFFIX = ".html"
EPILOG = """
\b
Examples:
  ckaudit report runs/nano
  ckaudit report runs/nano -o nano.html
  ckaudit report runs/nano runs/before -o changed.html
  ckaudit report log.csv --map loss=train/loss
\b
Each tab is a question: is it training, do gradients reach every layer, what
moved, what could not be judged. With a second run, what changed against it.
The file needs no network and sends nothing. A report of ours is replaced, any
other file is not. It is 4.5 MB at most: where it would be more, names are cut,
pictures get coarser or are left out, and it says so. The pictures need the
extra: pip install 'ckaudit[report]'
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing could be judged
"""

Other = Annotated[
    str, typer.Argument(metavar="[OTHER]", help="A run to compare it with, such as one that went well.", show_default=False)
]
Output = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to FILE; without it, to RUN.html in this folder.", show_default=False
    ),
]


class TriagedRun(NamedTuple):
    """A run with what triage says of it."""

    path: Path
    run: "Read"
    report: "Report"


def command(
    run: Run,
    other: Other = "",
    *,
    output: Output = "",
    step: Step = "",
    fail_on: FailOn = "",
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    allow_empty: AllowEmpty = False,
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    tau_slices: TauSlices = "",
) -> int:
    """Write verdict and pictures of a run as one HTML file that needs no network."""
    from ckaudit.cli.deliver import Request, exit_code
    from ckaudit.cli.output import say, write_text

    file = output or f"{Path(run).resolve().name}{SUFFIX}"
    request = Request(
        format="html",
        output=file,
        fail_on=options.severity(fail_on) if fail_on else None,
        allow_empty=allow_empty,
        formats=("html",),
    )
    check_replaceable(Path(file))
    at, choice = options.step(step or None), options.choice(map, which, tau_slices=tau_slices)
    from ckaudit.cli.gate import open_gate
    from ckaudit.reports.html import page_within_limit
    from ckaudit.reports.html.page import library

    library()  # where it is missing, say so before the work and not after
    gate = open_gate("triage", config=config, no_config=no_config, baseline=baseline, update=False)
    judged, *beside = [judge(Path(name), at, choice, gate, beside=bool(other)) for name in (run, other) if name]
    page, remarks = page_within_limit(judged.report, draw(judged, *beside))
    write_text(page, output=file)
    say(f"wrote {file}: {judged.report.verdict}")
    for remark in remarks:
        say(f"note: {remark}")
    code, reason = exit_code(judged.report, request)
    say(f"error: {reason}" if reason else "")
    return code


def check_replaceable(file: Path) -> None:
    """Raise `UsageError` where a file is there already that is no report of ours."""
    from ckaudit.reports.html import SIGNATURE

    if not file.is_file():
        return
    with file.open("rb") as stream:
        head = stream.read(len(SIGNATURE))
    if head and head != SIGNATURE.encode():
        raise UsageError(f"{file} is there already and is no ckaudit report", hint="choose another --output")


def judge(path: Path, step: int | None, choice: "Choice", gate: "Gate", *, beside: bool = False) -> TriagedRun:
    """Read a run with all that is drawn of it, and with what a comparison looks at where it stands beside another; audit it."""
    from ckaudit.audit.engine import clauses_of, open_judged, triage_run, with_slices
    from ckaudit.audit.load_run import at_step
    from ckaudit.panels.build import panel_reads

    with progress("reading") as tick:
        run = at_step(open_judged(path, reads=panel_reads(beside=beside), step=step, choice=choice, progress=tick), step)
    run = with_slices(run, clauses_of(run, gate)[0])
    return TriagedRun(path, run, triage_run(run, gate=gate))


def draw(judged: TriagedRun, other: TriagedRun | None = None) -> "Panels":
    """Return the pictures of a run, and of another beside it, which is the reference of the comparison."""
    from ckaudit.panels.build import panels

    if other is None:
        return panels(judged.run, judged.report, path=judged.path)
    from ckaudit.diff.compare import compare_read, subject_of

    reference, subject = (subject_of(side.path, side.run, side.report) for side in (other, judged))
    comparison = compare_read(reference, [subject])
    return panels(judged.run, judged.report, path=judged.path, other=(other.run, other.report), comparison=comparison)
