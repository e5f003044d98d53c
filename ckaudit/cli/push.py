"""`ckaudit push`: uploads of runs that are pending on this machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.options import seconds
from ckaudit.cli.output import say, write_text
from ckaudit.errors import CkauditError, UsageError
from ckaudit.remote.location import shown
from ckaudit.reports.escape import visible
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.remote.spool import Spool

EPILOG = """
\b
Examples:
  ckaudit push                                  all pending uploads
  ckaudit push s3://bucket/runs/nano            uploads to this address
  ckaudit push runs/nano --to s3://bucket/runs/nano
  ckaudit push --list
\b
Exit codes:
  0  everything named is uploaded; with --list: nothing is pending
  1  with --list: an upload is pending
  2  something could not be uploaded
"""

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN", help="Addresses that were recorded to, or their spool folders. Default: all.", show_default=False
    ),
]
To = Annotated[str, typer.Option("--to", metavar="ADDRESS", help="Upload a run folder to this address.", show_default=False)]
List = Annotated[bool, typer.Option("--list", "-l", help="Only list pending uploads.")]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="SECONDS", help="Give up after this time without progress.", show_default="60")
]
OldTimeout = Annotated[str, typer.Option("--time-out", hidden=True)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]


def command(
    runs: Runs = None,
    *,
    to: To = "",
    list_only: List = False,
    timeout: Timeout = "",
    time_out: OldTimeout = "",
    quiet: Quiet = False,
) -> int:
    """Upload runs whose recorder could not, because it was killed or the storage was unreachable."""
    from ckaudit.recorder.files.upload_spool import spool_named, spool_to
    from ckaudit.remote.spool import spools

    patience = seconds(timeout or time_out or "60", "--timeout")
    if to and (len(runs or []) != 1 or list_only):
        raise UsageError("--to puts one run folder up", hint="ckaudit push RUN --to ADDRESS")
    chosen = [spool_to((runs or [])[0], to)] if to else [spool_named(name) for name in runs] if runs else [*spools()]
    if list_only:
        return _list(chosen)
    if not chosen and not quiet:
        say("nothing waits here")
    return max((_push(spool, patience, quiet=quiet) for spool in chosen), default=0)


def _list(chosen: "list[Spool]") -> int:
    from ckaudit.recorder.files.upload_spool import waiting

    lines, some = [], False
    for spool in chosen:
        count = len(waiting(spool))
        some |= count > 0
        lines.append(f"{shown(spool.address)}: {plural(count, 'file') if count else 'nothing'} waiting in {spool.run}")
    write_text("".join(f"{visible(line)}\n" for line in lines))
    return 1 if some else 0


def _push(spool: "Spool", patience: float, *, quiet: bool) -> int:
    from ckaudit.recorder.files.upload_spool import push

    try:
        count = push(spool, patience=patience, report=lambda line: None if quiet else say(line))
    except CkauditError as error:
        say(f"error: {error}")
        say(f"hint: {error.hint}" if error.hint else "")
        return 2
    if not quiet:
        done = f"put up {plural(count, 'file')}" if count else "everything was up"
        say(f"{shown(spool.address)}: {done}")
    return 0
