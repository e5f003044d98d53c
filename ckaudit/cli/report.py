"""`ckaudit report`: one offline HTML file with the verdict and the pictures; or only its first page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ckaudit.cli import options
from ckaudit.cli.options import AllowEmpty, FailOn, Map, Run, Step, TauSlices, Which
from ckaudit.cli.output import progress
from ckaudit.cli.policy_options import BaselineFile, Config, Like, NoConfig
from ckaudit.errors import UsageError
from ckaudit.remote.addresses import with_addresses

if TYPE_CHECKING:
    from ckaudit.cli.deliver import OutputRequest
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.contract.schema.panels import Panels
    from ckaudit.contract.schema.report import Report
    from ckaudit.policy.acceptance import AcceptanceCriteria
    from ckaudit.run.run import Run as Read

FORMATS = ("html", "svg", "md", "png")
_OTHER_KINDS = frozenset(("pdf", "json", "sarif", "xml", "csv", "docx", "jpg", "jpeg", "gif", "webp", "tex"))
EPILOG = """
\b
Examples:
  ckaudit report runs/nano
  ckaudit report runs/nano -o nano.html
  ckaudit report runs/before runs/nano -o changed.html
  ckaudit report log.csv --map loss=train/loss
  ckaudit report runs/nano -o nano.svg
\b
Each tab is a question: is it training, do gradients reach every layer, what
moved, what could not be judged. With a second run: what changed.
The file needs no network and sends nothing. A report of ckaudit is replaced,
any other file is not. A report has at most 4.5 MB: if necessary, names are
cut, charts get coarser or are left out, and the report says so. The charts of
HTML need an extra: pip install '.[report]'
\b
For a pull request or a chat, the first page alone: svg and md need no extra,
png needs one: pip install '.[png]'. Without --format, the suffix of FILE
decides; otherwise, the format is html.
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing could be judged
"""

Other = Annotated[
    str, typer.Argument(metavar="[OTHER]", help="A second run, compared with the first as by ckaudit diff.", show_default=False)
]
Format = Annotated[str, options.format_option(FORMATS)]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE. Default: RUN.FORMAT in this folder.", show_default=False),
]


class TriagedRun(NamedTuple):
    """A run with the results of triage."""

    path: Path
    run: "Read"
    report: "Report"


class WrittenReport(NamedTuple):
    """The content of the file, and the messages about it."""

    content: bytes
    remarks: Sequence[str] = ()


def command(
    run: Run,
    other: Other = "",
    *,
    output: Output = "",
    format: Format = "",  # noqa: A002  what the option is called
    step: Step = "",
    fail_on: FailOn = "",
    config: Config = "",
    no_config: NoConfig = False,
    baseline: BaselineFile = "",
    like: Like = None,
    allow_empty: AllowEmpty = False,
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    tau_slices: TauSlices = "",
) -> int:
    """Write the verdict and charts of a run as one HTML file that needs no network."""
    from ckaudit.cli.deliver import OutputRequest
    from ckaudit.cli.output import open_output

    format = format or _format_of(output)  # noqa: A001  what the option is called
    file = output or f"{Path(run).resolve().name}.{format}"
    request = OutputRequest(
        format=format,
        output=file,
        fail_on=options.severity(fail_on) if fail_on else None,
        allow_empty=allow_empty,
        formats=FORMATS,
    )
    check_replaceable(Path(file))
    at, import_options = (
        options.step(step or None),
        options.import_options(map, which, tau_slices=tau_slices, config=config, no_config=no_config),
    )
    check_libraries(format)
    from ckaudit.cli.policy_options import hold_like, read_acceptance

    criteria = read_acceptance("triage", config=config, no_config=no_config, baseline=baseline, update=False)
    criteria = hold_like(criteria, like, [name for name in (run, other) if name], import_options)
    judged, *beside = [judge(Path(name), at, import_options, criteria, beside=bool(other)) for name in (run, other) if name]
    written = drawn(format, *with_addresses((judged.report, draw(judged, *beside))))
    with open_output(file) as stream:
        stream.write(written.content)
    subject = with_addresses((beside or [judged])[0].report)  # of two runs the second is judged
    return _say_outcome(subject, request, written.remarks)


def _say_outcome(report: "Report", request: "OutputRequest", remarks: Sequence[str]) -> int:
    """Print what was written and the notes on it, and return the exit code."""
    from ckaudit.cli.deliver import outcome_of
    from ckaudit.cli.output import say

    say(f"wrote {request.output}: {report.verdict}")
    for remark in remarks:
        say(f"note: {remark}")
    code, reason, _ = outcome_of(report, request)
    say(f"error: {reason}" if reason else "")
    return code


def check_replaceable(file: Path) -> None:
    """Raise `UsageError` if the file exists and is no report of ours."""
    from ckaudit.reports.html import SIGNATURE
    from ckaudit.reports.svg import picture, png

    if not file.is_file():
        return
    known = (SIGNATURE.encode(), picture.SIGNATURE.encode(), *([png.SIGNATURE] if file.suffix == ".png" else []))
    with file.open("rb") as stream:
        head = stream.read(max(map(len, known)))
    if head and not head.startswith(known):
        raise UsageError(f"{file} is there already and is no ckaudit report", hint="choose another --output")


def _format_of(output: str) -> str:
    """Return the format that the suffix of a file names; HTML if it names none.

    Raises:
        UsageError: If the suffix is that of another kind of file, such as .pdf.
    """
    suffix = Path(output).suffix.removeprefix(".").lower()
    if suffix in _OTHER_KINDS:
        raise UsageError(f"a report is not written as .{suffix}", hint=f"choose from .{', .'.join(FORMATS)}, or name a --format")
    return suffix if suffix in FORMATS else FORMATS[0]


def check_libraries(format: str) -> None:  # noqa: A002  what the option is called
    """Raise before the work if a library is missing."""
    from ckaudit.reports.html import page
    from ckaudit.reports.svg import png

    if format == "html":
        page.library()
    if format == "png":
        png.check_installed()


def drawn(format: str, report: "Report", panels: "Panels") -> WrittenReport:  # noqa: A002  what the option is called
    """Return a report in one of `FORMATS`."""
    from ckaudit.reports import html, summary
    from ckaudit.reports.svg import picture, png

    if format == "html":
        page, remarks = html.page_within_limit(report, panels)
        return WrittenReport(page.encode(errors="backslashreplace"), remarks)
    if format == "png":
        return WrittenReport(png.render(report, panels))
    render = picture.render if format == "svg" else summary.render
    return WrittenReport(render(report, panels).encode(errors="backslashreplace"))


def judge(
    path: Path, step: int | None, import_options: "ImportOptions", criteria: "AcceptanceCriteria", *, beside: bool = False
) -> TriagedRun:
    """Read a run with everything that is drawn, or compared with another run, and audit it."""
    from ckaudit.audit.engine import clauses_of, open_judged, triage_run, with_slices
    from ckaudit.audit.load_run import at_step
    from ckaudit.panels.build import panel_reads

    with progress("reading") as tick:
        run = at_step(
            open_judged(path, reads=panel_reads(beside=beside), step=step, import_options=import_options, progress=tick), step
        )
    run = with_slices(run, clauses_of(run, criteria)[0])
    return TriagedRun(path, run, triage_run(run, criteria=criteria))


def draw(judged: TriagedRun, other: TriagedRun | None = None) -> "Panels":
    """Return the pictures of a run, or of two runs, of which the second is judged as by `ckaudit diff`."""
    from ckaudit.panels.build import panels

    if other is None:
        return panels(judged.run, judged.report, path=judged.path)
    from ckaudit.diff.compare import compare_read, subject_of

    reference, subject = (subject_of(side.path, side.run, side.report) for side in (judged, other))
    comparison = compare_read(reference, [subject])
    return panels(judged.run, judged.report, path=judged.path, other=(other.run, other.report, other.path), comparison=comparison)
