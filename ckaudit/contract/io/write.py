"""Writing a file so that it appears whole or not at all, whatever kills the writer."""

import os
import re
from contextlib import suppress
from pathlib import Path

TEMPORARY_NAME = re.compile(r"^\.(?P<name>.+)\.tmp-(?P<pid>\d+)$", re.DOTALL)


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path`: a temporary file beside it, fsync, rename, fsync of the folder.

    A reader sees the old file or the new one. A writer killed midway leaves a temporary file that no reader takes for
    a checkpoint; `remove_stale` clears it away.

    Args:
        path: The file to make or to replace, in a folder that exists.
        data: All of its bytes.

    Raises:
        OSError: If the file could not be written; `path` is then as it was.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def remove_stale(folder: Path) -> list[str]:
    """Remove the temporary files of writers that are gone, or that had this process's number; return their names."""
    removed = []
    for path in sorted(folder.iterdir()):
        found = TEMPORARY_NAME.match(path.name)
        if found is None or _lives_elsewhere(int(found["pid"])):
            continue
        path.unlink(missing_ok=True)
        removed.append(path.name)
    return removed


def _lives_elsewhere(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # it lives, and belongs to someone else
    return True


def _sync_folder(folder: Path) -> None:
    # Some network file systems cannot sync a folder; the file itself is already safe.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
