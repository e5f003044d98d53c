"""The bytes of a checkpoint file: opened safely, and read in blocks of a few megabytes."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Self

from ckaudit.contract.io.files import is_inside
from ckaudit.contract.violations import ViolationKind
from ckaudit.resume.catalogue import CUT_OFF, UNREADABLE

BLOCK = 4 * 2**20


class FileFault(Exception):  # noqa: N818  never seen by a user: it carries the finding that will be
    """A fault of a file.

    Attributes:
        kind: Kind of the fault.
        message: Message, which follows the name of the file.
    """

    def __init__(self, kind: ViolationKind, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Unjudged(Exception):  # noqa: N818  never seen by a user: it carries the reason of a skip
    """The file cannot be judged, although no fault is known: the message says why."""


class OpenFile:
    """One open regular file: it stays readable if another process renames or deletes it.

    Attributes:
        path: Path of the file.
        shown: Name in findings.
        size: Bytes.
        time: When it was last written, Unix seconds.
    """

    def __init__(self, path: Path, shown: str, root: Path) -> None:
        """Open a file.

        Args:
            path: The file.
            shown: Name in findings.
            root: The folder that a link must not leave.

        Raises:
            FileFault: If the file cannot be opened.
        """
        self.path, self.shown = path, shown
        if not is_inside(path, root):
            raise FileFault(UNREADABLE, "is a link that leads out of the folder")
        try:
            # A pipe would block an ordinary open forever.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise FileFault(UNREADABLE, f"cannot be opened: {error.strerror or error}") from None
        status = os.fstat(self._descriptor)
        self.size, self.time = status.st_size, status.st_mtime
        if not S_ISREG(status.st_mode):
            self.close()
            raise FileFault(UNREADABLE, "is not a regular file")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes at an offset; the caller has limited `count`.

        Raises:
            FileFault: If the file ends earlier.
        """
        data = b"".join(bytes(block) for block in self.blocks(offset, count))
        if len(data) < count:
            raise FileFault(CUT_OFF, f"ends after {self.size:,} bytes, where {offset + count:,} are needed")
        return data

    def blocks(self, offset: int, count: int) -> Iterator[memoryview]:
        """Yield the bytes of a range; each block is valid until the next one, and all but the last have `BLOCK` bytes.

        The file is read, not memory-mapped: truncation during the read must not kill the process.

        Raises:
            FileFault: If the file ends earlier, or the disk fails.
        """
        buffer = memoryview(bytearray(min(BLOCK, max(count, 1))))
        end = offset + count
        while offset < end:
            wanted = min(len(buffer), end - offset)
            if self._fill(buffer[:wanted], offset) < wanted:
                raise FileFault(CUT_OFF, f"ends after {self.size:,} bytes, where {end:,} are needed")
            yield buffer[:wanted]
            offset += wanted

    def _fill(self, buffer: memoryview, offset: int) -> int:
        done = 0
        try:
            while done < len(buffer) and (count := os.preadv(self._descriptor, [buffer[done:]], offset + done)):
                done += count
        except (OSError, OverflowError) as error:
            raise FileFault(UNREADABLE, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        return done


def stays_inside(name: str) -> bool:
    r"""Tell whether a file name given inside a file stays below that file's folder, on any system.

    >>> stays_inside("__0_0.distcp"), stays_inside("../secret"), stays_inside("a\0b")
    (True, False, False)
    """
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    path = PurePosixPath(name)
    return bool(name) and "\0" not in name and not path.is_absolute() and ".." not in path.parts


def is_there(path: Path) -> bool:
    """Tell whether a path exists; a name that the system rejects does not."""
    return os.path.exists(path)  # noqa: PTH110  that of pathlib raises for a name too long
