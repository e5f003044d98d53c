"""From a report to the reader: it is drawn, written, and summarised in an exit code."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from ckaudit.cli.options import format_for
from ckaudit.cli.output import check_folder, fit_to_stdout, say, write_text
from ckaudit.remote.addresses import with_addresses
from ckaudit.reports import FORMATS, render
from ckaudit.reports.view import View

if TYPE_CHECKING:
    from ckaudit.contract.schema.report import Place, PlaceKey, Report, Severity
    from ckaudit.reports.outcome import ExitOutcome


class OutputRequest(Struct, frozen=True, kw_only=True):
    """The request for the output of a report, checked before the work starts.

    Attributes:
        format: One of `formats`; empty: that of the output's suffix, as `format_for` says.
        output: File to write; empty: standard output.
        fail_on: The mildest severity that fails; None: from the report's policy, else sev1.
        allow_empty: Whether a report that judged nothing is fine.
        require: "vital": a report in which a vital check could not judge does not pass; None: from the report's policy.
        verbose: Leave nothing out.
        quiet: Leave out what is not a finding.
        pictures: Draw pictures on a terminal.
        base: Folder that file names are relative to.
        formats: The available formats.
        places: File and line at which findings without a file begin, if looked up.
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
        force_setattr(self, "format", format_for(self.format, self.output, self.formats))
        check_folder(self.output)


def deliver(report: "Report", request: OutputRequest) -> int:
    """Draw and write `report`, and return the exit code."""
    write_output(lambda view: render(report, request.format, view), request)
    reached = outcome_of(report, request)
    if reached.reason:
        say(f"error: {reached.reason}")
        say("hint: --allow-empty accepts a report that judged nothing" if reached.is_empty else "")
    return reached.code


def write_output(draw: Callable[[View], str], request: OutputRequest) -> None:
    """Write the text that `draw` returns for a view, to a file or to standard output."""
    view = View(
        verbose=request.verbose,
        quiet=request.quiet,
        pictures=request.pictures,
        base=request.base,
        fail_on=request.fail_on,
        places=request.places,
    )
    view = with_addresses(view)
    if not request.output:
        view, encoding = fit_to_stdout(view, drawn=request.format == "terminal")
        write_text(draw(view), encoding)
        return
    write_text(draw(view), output=request.output)
    if not request.quiet:
        say(f"wrote {request.output}")


def outcome_of(report: "Report", request: OutputRequest) -> "ExitOutcome":
    """Return the exit code, with the reason if the report could not judge."""
    from ckaudit.reports.outcome import outcome

    return outcome(report, fail_on=request.fail_on, require=request.require, allow_empty=request.allow_empty)
