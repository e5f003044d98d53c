"""Uploads of runs that a recorder left in its spool."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.recorder.files.remote_run import RemoteRun
from ckaudit.remote.filesystem import is_passing
from ckaudit.remote.location import is_uri, shown
from ckaudit.remote.put import in_words, pauses
from ckaudit.remote.spool import Spool, spool_of, spools

_JOURNAL = re.compile(r"put-(\d+)\.jsonl")


def spool_named(name: str) -> Spool:
    """Return the spool that a user names by address, by folder or by the run folder in it.

    Raises:
        UnreadableError: If there is none.
    """
    path = Path(name).absolute()
    for spool in spools():
        if name.rstrip("/") in (spool.address, shown(spool.address)) or (not is_uri(name) and path in (spool.folder, spool.run)):
            return spool
    raise UnreadableError(f"{shown(name)} has no spool on this machine", hint="ckaudit push --list says which there are.")


def spool_to(folder: str, address: str) -> Spool:
    """Return a spool that uploads a local run folder to an address.

    Raises:
        UnreadableError: If there is no such folder.
        UsageError: If the address is invalid, or has a spool with another run.
    """
    if not is_uri(address):
        raise UsageError(f"--to {address} is no address", hint="Name a bucket and a folder in it, as s3://bucket/run.")
    if not Path(folder).is_dir():
        raise UnreadableError(f"there is no folder {folder}", hint="Name a run folder of this machine.")
    run = Path(folder).absolute()
    for spool in spools():
        if spool.address == address.rstrip("/") and spool.run != run:
            raise UsageError(
                f"{shown(address)} is where {spool.run} goes", hint=f"ckaudit push {shlex.quote(address)}, or another address"
            )
    return spool_of(address, run=run)


def waiting(spool: Spool) -> list[str]:
    """Return the names of the spool's files whose current content is not uploaded."""
    names = []
    for rank in _ranks(spool):
        run = RemoteRun(spool, rank=rank)
        run.load()
        names += run.waiting()
    return names


def push(spool: Spool, *, patience: float, report: Callable[[str], None] = lambda _: None) -> int:
    """Upload all files of a spool, and return their number.

    Args:
        spool: The spool; no recorder may be writing it.
        patience: Seconds of retries after a lost connection while nothing is uploaded.
        report: Called with a message when a connection is lost.

    Raises:
        CkauditError: If the spool could not be uploaded completely.
    """
    try:
        spool.make()
        lock = spool.lock(alone=True)
    except OSError as error:
        raise CkauditError(
            f"cannot write {spool.folder}: {error.strerror or error}", hint="CKAUDIT_SPOOL names another."
        ) from None
    if lock is None:
        raise CkauditError(f"{shown(spool.address)} is being recorded", hint="Its recorder puts it up.")
    try:
        return sum(_push_rank(spool, rank, patience, report) for rank in _ranks(spool))
    finally:
        os.close(lock)


def _push_rank(spool: Spool, rank: int, patience: float, report: Callable[[str], None]) -> int:
    run, waits, latest, progress = RemoteRun(spool, rank=rank), pauses(10.0), monotonic(), 0
    run.load()
    while True:
        try:
            run.upload(recheck_all=True)
        except Exception as error:  # noqa: BLE001  it is reported, or tried again
            if run.progress > progress:
                latest, progress, waits = monotonic(), run.progress, pauses(10.0)
            words = in_words(error, spool.address)
            if not is_passing(error) or monotonic() - latest > patience:
                hint = f"What is up stays: ckaudit push {shlex.quote(shown(spool.address))} goes on."
                raise CkauditError(f"{shown(spool.address)} does not take the run: {words}", hint=hint) from None
            report(f"{shown(spool.address)}: {words}; trying again")
            sleep(next(waits))
        else:
            with suppress(OSError):
                spool.note_finished(rank)
            return run.progress


def _ranks(spool: Spool) -> Sequence[int]:
    """Return the ranks whose files a spool holds."""
    ranks = {0}
    with suppress(OSError):
        ranks |= {int(match[1]) for name in os.listdir(spool.folder) if (match := _JOURNAL.fullmatch(name))}  # noqa: PTH208
    with suppress(OSError):
        matches = (CHECKPOINT_NAME.match(path.name) for path in spool.run.iterdir())
        ranks |= {int(match["rank"]) for match in matches if match and match["rank"] and not match["session"]}
    return sorted(ranks)
