"""Scalar logs that grow: what was added since the last look, in whole lines, however the files were rotated."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.files import BLOCK_BYTES, PACKED
from ckaudit.contract.report import Finding
from ckaudit.watch.file_stat import GONE, Stamp, stamp_of
from ckaudit.watch.streaming_decompress import Unpacker

PACKED_BYTES = 2**18  # read at once: ten times as many when they are unpacked
HEAD = 128  # bytes that a log is known again by: its first line names the step and the time


class Piece(Struct, frozen=True):
    """Whole lines that were added to a log: its path, the number of the first from 1, and their bytes.

    Where `broken` says why a packed log cannot be read on, there are none, and none will come.
    """

    path: Path
    first: int
    data: bytes
    broken: Finding | None = None


class ShrunkError(Exception):
    """A log no longer holds what was read from it; the text says which, and how that was seen."""


class _Log(Struct):
    """How far one log was read: bytes, whole lines, the file that they stand in, and how that begins.

    Of a packed one also what unpacks it, and the part of a line that was unpacked last.
    """

    file: tuple[int, int]
    offset: int = 0
    lines: int = 0
    head: bytes = b""
    unpacker: Unpacker | None = None
    rest: bytes = b""


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
        log = self._of(path, stamp)
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
                yield from self._packed(path, log, stream) if log.unpacker else self._plain(path, log, stream)
                log.head = head
        except OSError:  # renamed or refused at this moment: the next look tells
            return

    def _plain(self, path: Path, log: _Log, stream: BinaryIO) -> Iterator[Piece]:
        while data := _whole(stream.read(BLOCK_BYTES)):
            yield Piece(path, log.lines + 1, data)
            log.offset, log.lines = log.offset + len(data), log.lines + data.count(b"\n")
            stream.seek(log.offset)

    def _packed(self, path: Path, log: _Log, stream: BinaryIO) -> Iterator[Piece]:
        unpacker = log.unpacker
        while unpacker and not unpacker.broken and (packed := stream.read(PACKED_BYTES)):
            text = log.rest + unpacker.more(packed)
            data = text[: text.rfind(b"\n") + 1]
            log.offset, log.rest = log.offset + len(packed), text[len(data) :]
            if data:
                yield Piece(path, log.lines + 1, data)
                log.lines += data.count(b"\n")
            if unpacker.broken:
                why = f"cannot be unpacked: {unpacker.broken}"
                yield Piece(path, log.lines + 1, b"", violations.BAD_COMPRESSION.at(path.name, why))

    def _of(self, path: Path, stamp: Stamp) -> _Log:
        """Return how far a file was read, whatever it was called then.

        Raises:
            ShrunkError: Where a packed log is another file than it was: whoever packs a log anew packs all of it.
        """
        name, is_packed = path.name, path.suffix in PACKED
        log = self._logs.get(name)
        if log is None or log.file != stamp.file:
            if log is not None and is_packed:
                raise ShrunkError(f"{name} was written anew")
            former = next((each for each, other in self._logs.items() if other.file == stamp.file), None)
            log = (
                _Log(stamp.file, unpacker=Unpacker(path.suffix) if is_packed else None)
                if former is None
                else self._logs.pop(former)
            )
            self._logs[name] = log
        return log


def _whole(block: bytes) -> bytes:
    """Return the whole lines of a block; a line as long as the block is no line, and is taken as it is."""
    return block if len(block) == BLOCK_BYTES and b"\n" not in block else block[: block.rfind(b"\n") + 1]
