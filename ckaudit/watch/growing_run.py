"""One growing run: new whole lines of its logs, and all records so far, kept in bounded memory."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.io.fast_jsonl import LineTable, Tabulator
from ckaudit.contract.io.files import BLOCK_BYTES, MAX_BYTES, MAX_RATIO, MAX_WINDOW, PACKED
from ckaudit.contract.io.folder import CheckpointFile, RunFiles
from ckaudit.contract.io.jsonl import MAX_EXPLAINED, Lines, parse_lines
from ckaudit.contract.schema.report import Finding
from ckaudit.run.builder import RunBuilder
from ckaudit.run.read import RunReader
from ckaudit.run.run import Run
from ckaudit.run.scalars import ColumnJoiner, ScalarColumns, SessionLogs
from ckaudit.run.series import Floats, Mask, Steps
from ckaudit.run.units import in_catalogue_units

PACKED_BYTES = 2**18  # bytes per read; unpacked, they may be ten times as many

HEAD_BYTES = 128  # bytes that identify a log: its first line has the step and the time

AT_ONCE = 4096  # packed bytes unpacked per call: any content fits into memory

MANY_LINES = 2**16  # bytes from which on lines are parsed by columns

MANY_PARTS = 64

MANY_CHECKPOINTS = 1024

NEWEST_VALUES = 4096
"""Values kept in full; many times the longest `memory` of a rule and its metrics."""

OLDER_VALUES = 4096
"""Values kept of all earlier ones."""

MAX_VALUES = 16384
"""Length at which a column is thinned, so that the cost of thinning per value is constant."""


class Stamp(NamedTuple):
    """Identifies the state of a file without reading it: device and inode, size in bytes, and time of the last write in ns."""

    file: tuple[int, int]
    size: int
    time: int


GONE = Stamp((0, 0), -1, -1)
"""The stamp of a path that does not exist or is not accessible."""


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
    """Unpacks one file as it grows, frame by frame; an incomplete end is kept until more arrives.

    Attributes:
        broken: Why nothing more can be read from it; empty: more can.
    """

    def __init__(self, suffix: str) -> None:
        """Begin; the suffix `.gz` or `.zst` names the compression."""
        self.broken = ""
        self._suffix = suffix
        self._frame: Any = self._new_decompressor()
        self._taken = self._given = 0

    def more(self, data: bytes) -> bytes:
        """Return the content of the next bytes, empty if it depends on later ones."""
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
                self._frame = self._new_decompressor()
            try:
                unpacked.append(self._frame.decompress(data))
            except Exception as error:  # noqa: BLE001  each kind of packing has an error of its own
                self.broken = str(error)
                return
            self._given += len(unpacked[-1])
            data = self._frame.unused_data
        if self._given > max(MAX_BYTES, MAX_RATIO * self._taken):
            self.broken = f"unpacked, it is more than {MAX_RATIO} times as large"

    def _new_decompressor(self) -> Any:
        """Return a decompressor for one frame."""
        if self._suffix == ".gz":
            return zlib.decompressobj(wbits=31)
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()


class AppendedLines(Struct, frozen=True):
    """Whole lines added to a log: its path, the number of the first line from 1, and their bytes.

    If `broken` is set, with the reason why a packed log cannot be read further, there are no lines and none will follow.
    """

    path: Path
    first: int
    data: bytes
    broken: Finding | None = None


class ShrunkError(Exception):
    """A log has lost content that was read before; the message says which, and how this was detected."""


class _Log(Struct):
    """The reading state of one log: bytes, whole lines, its file, and the first bytes of that.

    For a packed log also its unpacker, and the last, incomplete line.
    """

    file: tuple[int, int]
    offset: int = 0
    lines: int = 0
    head: bytes = b""
    unpacker: Unpacker | None = None
    rest: bytes = b""


class Logs:
    """The logs of one folder, identified by device and inode, so that a renamed log continues under its new name."""

    def __init__(self) -> None:
        """Begin without logs."""
        self._logs: dict[str, _Log] = {}

    def added(self, path: Path) -> Iterator[AppendedLines]:
        """Yield the lines added to one log, in blocks; a last line without newline waits for the rest.

        Raises:
            ShrunkError: If it was truncated, or another file has its place under the same inode.
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
                head = stream.read(HEAD_BYTES)
                if not head.startswith(log.head):
                    raise ShrunkError(f"{path.name} was written anew")
                stream.seek(log.offset)
                yield from self._packed(path, log, stream) if log.unpacker else self._plain(path, log, stream)
                log.head = head
        except OSError:  # being renamed or not accessible now: the next poll will show
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
        """Return the reading state of a file, under any earlier name.

        Raises:
            ShrunkError: If a packed log is a different file: a program that packs a log again packs all of it.
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
    """Return the whole lines of a block; a line that fills the block is no line, and is returned as it is."""
    return block if len(block) == BLOCK_BYTES and b"\n" not in block else block[: block.rfind(b"\n") + 1]


class BoundedHistory:
    """The records of a run read so far, in bounded memory.

    Attributes:
        reader: Gathers lines and checkpoints.
        in_full: The first step from which on nothing was thinned; 0: nothing was.
        lines: Number of lines.
    """

    def __init__(self, folder: RunFiles, paths: frozenset[str]) -> None:
        """Begin without records."""
        self._paths = paths
        self._files: list[CheckpointFile] = []
        self.reader = RunReader(folder, paths, SessionLogs())
        self.in_full = 0
        self.lines = 0
        self._tabulator = Tabulator()
        self._faulty: dict[str, int] = {}
        self._due = MAX_VALUES
        self._judged = False

    def take_piece(self, piece: AppendedLines) -> Lines:
        """Add lines of a log, and return them parsed."""
        shown, faulty = piece.path.name, self._faulty.get(piece.path.name, 0)
        tabulate = self._table if len(piece.data) >= MANY_LINES else None
        lines = parse_lines(piece.data, shown, first_line=piece.first, explained=faulty, tabulate=tabulate)
        self._faulty[shown] = faulty + lines.faulty
        lines.findings = lines.findings[: MAX_EXPLAINED + 1 - min(faulty, MAX_EXPLAINED)]
        self.reader.take_lines(lines)
        lines.findings += self.reader.over_budget(shown)
        if tabulate:
            self._tabulator.learn(lines.rows)
        self.lines += len(lines.rows) + (0 if lines.table is None else len(lines.table.steps))
        if self._judged and self.lines >= self._due:
            self._thin()
        return lines

    def take_checkpoints(self, files: Iterable[CheckpointFile]) -> None:
        """Read new checkpoints and rank files; if there are very many, every second older one is dropped."""
        for file in files:
            if file.rank is None:
                self.reader.take_checkpoint(file)
                self._files.append(file)
            else:
                self.reader.take_rank(file)
        if len(self._files) >= MANY_CHECKPOINTS:
            older, newest = self._files[: -MANY_CHECKPOINTS // 2], self._files[-MANY_CHECKPOINTS // 2 :]
            self._files = []
            self.reader.builder = RunBuilder(self._paths)
            self.in_full = max(self.in_full, newest[0].step or 0)
            self.take_checkpoints([*older[::2], *newest])

    def run(self, name: str, folder: RunFiles) -> Run:
        """Return the records as a run: complete the first time, later the kept ones."""
        self.reader.folder = folder
        if not self._judged:
            self._judged, self._due = True, 0  # thinned with the next line
            return in_catalogue_units(self.reader.run(name), {})
        if any(stretches(log) > MANY_PARTS for log in self.reader.log.sessions.values()):
            self._thin()
        return in_catalogue_units(self.reader.run(name), {})

    def _thin(self) -> None:
        sessions = self.reader.log.sessions
        first_steps = [thin_log(log) for log in sessions.values()]
        self.in_full = max([self.in_full, *(step for step in first_steps if step is not None)])
        self._due = self.lines + max(MAX_VALUES // 4, MAX_VALUES - max(map(size, sessions.values()), default=0))

    def _table(self, body: bytes) -> LineTable | None:
        table = self._tabulator.read(body)
        return table if table is not None and self.reader.log.takes(table) else None


# The kept history: the newest values of every name in full, older ones thinned, so that memory is bounded.
def thin_log(log: ScalarColumns) -> int | None:
    """Thin every column that is too long, in place.

    Of values older than `NEWEST_VALUES`, the first of each of `OLDER_VALUES` equal ranges of steps is kept, the same ones in all
    columns of the same steps, and each value that is not finite. A name that is logged rarely is kept completely.

    Returns:
        The first step from which on everything is kept; None: nothing was thinned.
    """
    joiner, firsts = ColumnJoiner(), []
    for column in log.numbers.values():
        joined = joiner.join(column)
        if len(joined.steps) >= MAX_VALUES:
            rows = _kept(joined.steps, joined.values)
            column.parts = [(joined.steps[rows], joined.values[rows])]
            firsts.append(int(joined.steps[-NEWEST_VALUES]))
        elif len(column.parts) > 1:
            column.parts = [(joined.steps, joined.values)]
    for name, words in log.words.items():
        if len(words) >= MAX_VALUES:
            older = len(words) - NEWEST_VALUES
            log.words[name] = dict(islice(words.items(), 0, older, -(-older // OLDER_VALUES))) | dict(
                islice(words.items(), older, None)
            )
    return max(firsts, default=None)


def size(log: ScalarColumns) -> int:
    """Return the length of the longest column."""
    return max((sum(len(steps) for steps, _ in number.parts) + len(number.steps) for number in log.numbers.values()), default=0)


def stretches(log: ScalarColumns) -> int:
    """Return the largest number of pieces that a column is stored in."""
    return max((len(number.parts) for number in log.numbers.values()), default=0)


def _kept(steps: Steps, values: Floats) -> Mask:
    older = len(values) - NEWEST_VALUES
    rows = ~np.isfinite(values)
    if rows.sum() > OLDER_VALUES:  # a name that is not finite for most of the run
        rows[:] = False
    # By steps, not by rows: otherwise repeated thinning would remove the whole beginning.
    turn = (steps[:older] - steps[0]) * OLDER_VALUES // max(1, int(steps[older] - steps[0]))
    rows[:older] |= np.diff(turn, prepend=-1) != 0
    rows[older:] = True
    return rows
