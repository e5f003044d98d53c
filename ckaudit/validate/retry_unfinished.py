"""Reading a file that somebody may be writing: a broken young file is looked at again before it is called broken."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.schema.report import Finding

UNFINISHED = frozenset(kind.code for kind in (violations.EMPTY, violations.TRUNCATED, violations.BAD_COMPRESSION))

Judge = Callable[[bytes], list[Finding]]
_Stamp = tuple[int, int, int]


class Patience(Struct):
    """How long a validation may wait for writers, all files together.

    Attributes:
        left: Seconds left to wait. A writer that does not rename needs milliseconds; two seconds spare a slow network disk.
        young: Only a file changed within this many seconds can be one that is being written.
        pause: Seconds between two looks.
        quiet: Looks without a change after which a file is taken as it is.
    """

    left: float = 2.0
    young: float = 2.0
    pause: float = 0.1
    quiet: int = 3


def read_settled(path: Path, shown: str, judge: Judge, patience: Patience, *, root: Path | None) -> str | None:
    """Read and judge a file until it is whole or stops changing.

    Args:
        path: The file.
        shown: Its name in notes.
        judge: Takes the bytes, keeps what it makes of them and returns the findings; the last call counts.
        patience: How long to wait, shared by all files.
        root: The folder that the file must not leave by a link.

    Returns:
        None, or a note that says why the file was not judged.

    Raises:
        BrokenFile: With the finding that says why there are no bytes.
    """
    quiet, changing = 0, False
    before = _stamp(path)
    while True:
        broken = _look(path, shown, judge, root)
        if not broken:
            return None
        stamp = _stamp(path)
        if stamp is None and not path.is_symlink():
            return f"{shown}: went away while the folder was read"
        changing = stamp != before
        quiet = 0 if changing else quiet + 1
        if quiet > patience.quiet or not _may_be_growing(broken, stamp, patience):
            break
        before = stamp
        time.sleep(patience.pause)
        patience.left -= patience.pause
    if changing:
        return f"{shown}: still being written, so it was not judged"
    if isinstance(broken, BrokenFile):
        raise broken
    return None


def _look(path: Path, shown: str, judge: Judge, root: Path | None) -> BrokenFile | list[Finding]:
    """Return what speaks for a file that is not finished; an empty list: nothing."""
    try:
        findings = judge(read_bytes(path, shown, root=root))
    except BrokenFile as broken:
        return broken
    return [finding for finding in findings if finding.code in UNFINISHED]


def _may_be_growing(broken: BrokenFile | list[Finding], stamp: _Stamp | None, patience: Patience) -> bool:
    if stamp is None or (isinstance(broken, BrokenFile) and broken.finding.code not in UNFINISHED):
        return False
    return patience.left > 0 and time.time() - stamp[1] / 1e9 < patience.young


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
