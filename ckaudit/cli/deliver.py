"""From a report to the reader: drawn, written, and summed up in an exit code."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from ckaudit.cli.options import one_of
from ckaudit.cli.output import check_folder, fit_to_stdout, say, write_text
from ckaudit.reports import FORMATS, render
from ckaudit.reports.view import View

if TYPE_CHECKING:
    from ckaudit.contract.schema.report import Place, PlaceKey, Report, Severity


class Request(Struct, frozen=True, kw_only=True):
    """What was asked of a report, checked before the work starts.

    Attributes:
        format: One of `FORMATS`.
        output: File to write; empty: standard output.
        fail_on: The least grave severity that fails; None: what the report's policy says, else sev1.
        allow_empty: Whether a report that judged nothing is fine.
        require: vital: a report in which a vital check could not judge does not pass; None: what the report's policy says.
        verbose: Leave nothing out.
        quiet: Leave out what is not a finding.
        pictures: Draw pictures on a screen.
        base: Folder that file names start from.
        formats: The formats there are.
        places: File and line at which findings that name no file begin, where that was looked up.
    """

    format: str
    output: str
    fail_on: "Severity | None"
    allow_empty: bool
    require: str | None = None
    verbose: bool = False
    quiet: bool = False
    pictures: bool = True
    base: str = ""
    formats: tuple[str, ...] = FORMATS
    places: "Mapping[PlaceKey, Place]" = MappingProxyType({})

    def __post_init__(self) -> None:
        one_of(self.format, self.formats, "format")
        check_folder(self.output)


def deliver(report: "Report", request: Request) -> int:
    """Draw and write `report`, and return the exit code."""
    write_output(lambda view: render(report, request.format, view), request)
    code, reason = exit_code(report, request)
    if reason:
        say(f"error: {reason}")
        empty = code == 2 and not _broken(report) and not _is_short(report, request)
        say("hint: --allow-empty accepts a report that judged nothing" if empty else "")
    return code


def write_output(draw: Callable[[View], str], request: Request) -> None:
    """Write what `draw` makes of a view: to a file, or to standard output."""
    view = View(
        verbose=request.verbose,
        quiet=request.quiet,
        pictures=request.pictures,
        base=request.base,
        fail_on=request.fail_on,
        places=request.places,
    )
    if not request.output:
        view, encoding = fit_to_stdout(view, drawn=request.format == "terminal")
        write_text(draw(view), encoding)
        return
    write_text(draw(view), output=request.output)
    if not request.quiet:
        say(f"wrote {request.output}")


def exit_code(report: "Report", request: Request) -> tuple[int, str]:
    """Return 0, 1 or 2, and for 2 the reason.

    A finding counts before anything that went missing: what is found is found. A check that broke is not a clean one.
    """
    from ckaudit.reports.words import failing_severities

    failing = failing_severities(report, request.fail_on)
    if any(finding.severity in failing for finding in report.findings):
        return 1, ""
    if broken := _broken(report):
        return 2, f"{', '.join(broken)} broke: the audit is not complete"
    if _is_short(report, request):
        return 2, "a vital check could not judge, and --require vital asks for all that apply"
    judged = any(check.outcome in ("passed", "failed") for check in report.checks) and report.judged != "nothing"
    answered = any(answer.word in ("good", "watch", "bad") for phase in report.interview for answer in phase.answers)
    if request.allow_empty or ((judged or answered) and report.files):
        return 0, ""
    return 2, f"nothing could be judged: {_why_nothing(report)}"


def _why_nothing(report: "Report") -> str:
    if not report.files:
        return "no file was read"
    from ckaudit.audit.vital_checks import limits, nothing_vital

    return limits(report.vital) if nothing_vital(report) else f"all {len(report.checks)} checks were skipped"


def _is_short(report: "Report", request: Request) -> bool:
    """Return whether vital checks are required and one that applies could not judge."""
    required = request.require or (report.policy and report.policy.require)
    return required == "vital" and report.judged in ("limited", "nothing")


def _broken(report: "Report") -> list[str]:
    """Return the codes of the checks that broke instead of judging."""
    return [check.code for check in report.checks if check.outcome == "error"]
