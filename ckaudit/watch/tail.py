"""Scalar logs that grow: what was added since the last look, in whole lines, however the files were rotated."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.io.files import BLOCK_BYTES, MAX_BYTES, MAX_RATIO, MAX_WINDOW, PACKED
from ckaudit.contract.schema.report import Finding

PACKED_BYTES = 2**18  # read at once: ten times as many when they are unpacked

HEAD = 128  # bytes that a log is known again by: its first line names the step and the time

AT_ONCE = 4096  # packed bytes that are unpacked together: whatever they hold, it fits into memory


class Stamp(NamedTuple):
    """What tells one state of a file from another unread: device and inode, size in bytes, and time of the last write in ns."""

    file: tuple[int, int]
    size: int
    time: int


GONE = Stamp((0, 0), -1, -1)
"""The stamp of what is not there, or may not be looked at."""


def stamp_of(path: Path | None) -> Stamp:
    """Return the stamp of a file or a folder."""
    if path is None:
        return GONE
    try:
        status = path.stat()
    except OSError:
        return GONE
    return Stamp((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


class Unpacker:
    """Unpacks one file as it grows, frame after frame from its beginning; a cut-off end is waited for.

    Attributes:
        broken: Why nothing more can be had of it; empty: more can.
    """

    def __init__(self, suffix: str) -> None:
        """Begin; the suffix, `.gz` or `.zst`, tells how the file is packed."""
        self.broken = ""
        self._suffix = suffix
        self._frame: Any = self._begun()
        self._taken = self._given = 0

    def more(self, data: bytes) -> bytes:
        """Return what the next bytes of the file hold, empty where that is not known before still further ones."""
        unpacked: list[bytes] = []
        for start in range(0, len(data), AT_ONCE):
            self._piece(data[start : start + AT_ONCE], unpacked)
            if self.broken:
                break
        return b"".join(unpacked)

    def _piece(self, data: bytes, unpacked: list[bytes]) -> None:
        self._taken += len(data)
        while data:
            if self._frame.eof:
                self._frame = self._begun()
            try:
                unpacked.append(self._frame.decompress(data))
            except Exception as error:  # noqa: BLE001  each kind of packing has an error of its own
                self.broken = str(error)
                return
            self._given += len(unpacked[-1])
            data = self._frame.unused_data
        if self._given > max(MAX_BYTES, MAX_RATIO * self._taken):
            self.broken = f"unpacked, it is more than {MAX_RATIO} times as large"

    def _begun(self) -> Any:
        """Return what unpacks one frame."""
        if self._suffix == ".gz":
            return zlib.decompressobj(wbits=31)
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()


class AppendedLines(Struct, frozen=True):
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

    def added(self, path: Path) -> Iterator[AppendedLines]:
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

    def _plain(self, path: Path, log: _Log, stream: BinaryIO) -> Iterator[AppendedLines]:
        while data := _whole(stream.read(BLOCK_BYTES)):
            yield AppendedLines(path, log.lines + 1, data)
            log.offset, log.lines = log.offset + len(data), log.lines + data.count(b"\n")
            stream.seek(log.offset)

    def _packed(self, path: Path, log: _Log, stream: BinaryIO) -> Iterator[AppendedLines]:
        unpacker = log.unpacker
        while unpacker and not unpacker.broken and (packed := stream.read(PACKED_BYTES)):
            text = log.rest + unpacker.more(packed)
            data = text[: text.rfind(b"\n") + 1]
            log.offset, log.rest = log.offset + len(packed), text[len(data) :]
            if data:
                yield AppendedLines(path, log.lines + 1, data)
                log.lines += data.count(b"\n")
            if unpacker.broken:
                why = f"cannot be unpacked: {unpacker.broken}"
                yield AppendedLines(path, log.lines + 1, b"", violations.BAD_COMPRESSION.at(path.name, why))

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
            former = next((former_name for former_name, other in self._logs.items() if other.file == stamp.file), None)
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
