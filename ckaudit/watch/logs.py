"""Scalar logs that grow: what was added since the last look, in whole lines, however the files were rotated."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ckaudit.contract.files import BLOCK_BYTES
from ckaudit.watch.stamp import GONE, Stamp, stamp_of

HEAD = 128  # bytes that a log is known again by: its first line names the step and the time


class Piece(Struct, frozen=True):
    """Whole lines that were added to a log: its path, the number of the first from 1, and their bytes."""

    path: Path
    first: int
    data: bytes


class ShrunkError(Exception):
    """A log no longer holds what was read from it; the text says which, and how that was seen."""


class _Log(Struct):
    """How far one log was read: bytes, whole lines, the file that they stand in, and how that begins."""

    file: tuple[int, int]
    offset: int = 0
    lines: int = 0
    head: bytes = b""


class Logs:
    """The logs of one folder, known by device and inode, so that one that was renamed goes on under its new name."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._logs: dict[str, _Log] = {}

    def added(self, path: Path) -> Iterator[Piece]:
        """Yield what was added to one log, in blocks; a last line without its newline is waited for.

        Raises:
            ShrunkError: Where it was cut, or another file stands in its place under the same inode.
        """
        stamp = stamp_of(path)
        if stamp == GONE:
            return
        log = self._of(path.name, stamp)
        if stamp.size == log.offset:
            return
        if stamp.size < log.offset:
            raise ShrunkError(f"{path.name} became shorter")
        try:
            with path.open("rb") as stream:
                head = stream.read(HEAD)
                if not head.startswith(log.head):
                    raise ShrunkError(f"{path.name} was written anew")
                stream.seek(log.offset)
                while data := _whole(stream.read(BLOCK_BYTES)):
                    yield Piece(path, log.lines + 1, data)
                    log.offset, log.lines, log.head = log.offset + len(data), log.lines + data.count(b"\n"), head
                    stream.seek(log.offset)
        except OSError:  # renamed or refused at this moment: the next look tells
            return

    def _of(self, name: str, stamp: Stamp) -> _Log:
        """Return how far a file was read, whatever it was called then."""
        log = self._logs.get(name)
        if log is None or log.file != stamp.file:
            former = next((each for each, other in self._logs.items() if other.file == stamp.file), None)
            log = _Log(stamp.file) if former is None else self._logs.pop(former)
            self._logs[name] = log
        return log


def _whole(block: bytes) -> bytes:
    """Return the whole lines of a block; a line as long as the block is no line, and is taken as it is."""
    return block if len(block) == BLOCK_BYTES and b"\n" not in block else block[: block.rfind(b"\n") + 1]
