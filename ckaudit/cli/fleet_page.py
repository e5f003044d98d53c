"""The overview of a fleet as a file, with the reports of its ill runs beside it."""

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.output import check_folder, open_output, progress, say
from ckaudit.errors import CkauditError, UsageError

if TYPE_CHECKING:
    from ckaudit.contract.schema.fleet import Fleet, FleetRun
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.policy.acceptance import AcceptanceCriteria

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
UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
MAX_LETTERS = 60


def check(html: str, reports: str) -> None:
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


def write(fleet: "Fleet", html: str, reports: str, import_options: "ImportOptions", criteria: "AcceptanceCriteria") -> None:
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
