"""Safe reading and writing of run files: bounded sizes, links that stay inside, decompression, and atomic writes."""

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from ckaudit.contract import violations
from ckaudit.contract.schema.report import Finding
from ckaudit.remote.arrivals import wait_for

if TYPE_CHECKING:
    from gzip import GzipFile


MAX_BYTES = 64 * 2**20  # the largest complete checkpoint measured, with all digits of every grid, has 15 MB
MAX_LOG_BYTES = 2 * 2**30  # ten million lines of 200 bytes
MAX_RATIO = 250  # constant lines compress a hundredfold, a decompression bomb a thousandfold
BLOCK_BYTES = 4 * 2**20
MAX_PARTS = 1_000_000  # keys, arrays and objects: 30 statistics for each of 18,000 tensors, experts separately, with a margin
MAX_ITEMS = 6_000_000  # 750 complete grids have 0.8 million
MAX_NAME_BYTES = 200  # leaves room for the longer name of a temporary file
MAX_WINDOW = 2**27  # window that zstd --long needs
PACKED = (".gz", ".zst")
MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""First bytes of compressed files, and the suffix that a name needs for decompression."""

CHECKPOINT_NAME = re.compile(
    r"^analysis_checkpoint_(?:step_)?(?P<step>\d{1,18})?(?P<label>.*?)"
    r"(?:\.session(?P<session>\d+))?(?:\.rank(?P<rank>\d+))?\.json(?:\.gz|\.zst)?$",
    re.DOTALL,
)
SCALARS_PATTERN = re.compile(r"^scalars.*\.jsonl(?:\.gz|\.zst)?$", re.DOTALL)
SCALARS_NAME = "scalars.jsonl"
MANIFEST_NAME = "run.json"
REFERENCE_NAME = "reference.npz"

TEMPORARY_NAME = re.compile(r"^\.(?P<name>.+)\.tmp-(?P<pid>\d+)$", re.DOTALL)

_NUMBERS = count()

_MARKS = (
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a rar archive"),
    (0, b"\xfd7zXZ\x00", "packed with xz"),
    (0, b"BZh", "packed with bzip2"),
)  # offset of a magic number, the magic number, and the kind of archive

UNPACK = "Unpack it, and name what comes out: a run folder, or a log."


class BrokenFile(Exception):  # noqa: N818  never seen by a user: it carries the finding that will be
    """A file whose bytes cannot be read."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def checkpoint_file_name(step: int, suffix: str = ".json", *, rank: int | None = None) -> str:
    """Return the name of the checkpoint of `step`: the merged one, or one rank's own.

    >>> checkpoint_file_name(500)
    'analysis_checkpoint_step_00000500.json'
    >>> checkpoint_file_name(500, rank=3)
    'analysis_checkpoint_step_00000500.rank003.json'
    """
    label = "" if rank is None else f".rank{rank:03d}"
    return f"analysis_checkpoint_step_{step:08d}{label}{suffix}"


def read_bytes(path: Path, shown: str, *, root: Path | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the uncompressed bytes of a JSON document, like `raw_bytes`; a document of too many parts is broken as well."""
    data = raw_bytes(path, shown, root=root, max_bytes=max_bytes)
    refuse_crowds(data, shown)
    return data


def raw_bytes(path: Path, shown: str, *, root: Path | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the uncompressed bytes of `path`.

    Args:
        path: The file; `.gz` and `.zst` are unpacked.
        shown: Its name in findings.
        root: Folder that it must not leave through a link.
        max_bytes: Largest size, packed or unpacked.

    Raises:
        BrokenFile: With the finding that explains it.
    """
    with _open(path, shown, root, max_bytes) as stream:
        if path.suffix in PACKED:
            return b"".join(_unpacked_blocks(stream, path.suffix, shown, max_bytes))
        try:
            return stream.readall()
        except OSError as error:
            raise _unreadable(shown, error) from None


def refuse_crowds(data: bytes, shown: str) -> None:
    """Refuse a document that would take a hundred times the memory of its text, for example many empty objects.

    Raises:
        BrokenFile: With the finding that explains it.
    """
    if len(data) <= BLOCK_BYTES:
        return
    if data.count(b":") + data.count(b"[") + data.count(b"{") > MAX_PARTS:
        message = f"holds more than {MAX_PARTS:,} keys, arrays and objects"
        raise BrokenFile(violations.TOO_LARGE.at(shown, message))
    if data.count(b",") > MAX_ITEMS:
        raise BrokenFile(violations.TOO_LARGE.at(shown, f"holds more than {MAX_ITEMS:,} items"))


def read_blocks(path: Path, shown: str, *, root: Path | None = None, max_bytes: int = MAX_LOG_BYTES) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a log, a few megabytes at a time.

    Args:
        path: The file; `.gz` and `.zst` are unpacked.
        shown: Its name in findings.
        root: Folder that it must not leave through a link.
        max_bytes: Largest size, packed or unpacked.

    Raises:
        BrokenFile: With the finding that explains why there are no more bytes; the bytes before are valid.
    """
    with _open(path, shown, root, max_bytes) as stream:
        if path.suffix in PACKED:
            limit = min(max_bytes, max(MAX_BYTES, MAX_RATIO * os.fstat(stream.fileno()).st_size))
            yield from _unpacked_blocks(stream, path.suffix, shown, limit)
            return
        try:
            while block := stream.read(BLOCK_BYTES):
                yield block
        except OSError as error:
            raise _unreadable(shown, error) from None


def _open(path: Path, shown: str, root: Path | None, max_bytes: int) -> FileIO:
    wait_for(path)
    try:
        if root is not None and path.is_symlink() and not is_inside(path, root):
            raise BrokenFile(violations.LINK_OUTSIDE.at(shown, "the file is a link that leads out of the folder"))
        # An ordinary open of a pipe would block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BrokenFile(violations.UNREADABLE.at(shown, f"cannot be opened: {error.strerror or error}")) from None
    status = os.fstat(descriptor)
    if S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return FileIO(descriptor, "rb")
    os.close(descriptor)
    if S_ISREG(status.st_mode):
        raise _too_large(shown, status.st_size, max_bytes)
    raise BrokenFile(violations.UNREADABLE.at(shown, "is not a regular file"))


def _unreadable(shown: str, error: OSError) -> BrokenFile:
    return BrokenFile(violations.UNREADABLE.at(shown, f"cannot be read: {error.strerror or error}"))


def _unpacked_blocks(stream: FileIO, suffix: str, shown: str, limit: int) -> Iterator[bytes]:
    unpacker: IO[bytes] | GzipFile
    broken: tuple[type[Exception], ...]
    if suffix == ".gz":
        import gzip

        unpacker, broken = gzip.GzipFile(fileobj=stream), (OSError, zlib.error)
    else:
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        unpacker, broken = decompressor.stream_reader(stream, read_across_frames=True), (OSError, zstandard.ZstdError)
    total = 0
    try:
        while block := unpacker.read(BLOCK_BYTES):
            total += len(block)
            if total > limit:
                raise _too_large(shown, None, limit)
            yield block
    except EOFError:
        raise BrokenFile(_cut_off(stream, shown)) from None
    except broken as error:
        raise BrokenFile(violations.BAD_COMPRESSION.at(shown, f"cannot be unpacked: {error}")) from None
    if total == 0 and os.fstat(stream.fileno()).st_size:
        raise BrokenFile(_cut_off(stream, shown))


def _cut_off(stream: FileIO, shown: str) -> Finding:
    size = os.fstat(stream.fileno()).st_size
    return violations.TRUNCATED.at(shown, f"the compressed file ends in the middle, after {size:,} bytes")


def is_inside(path: Path, root: Path) -> bool:
    """Tell whether a file is below a folder, with links followed."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return True  # a loop or a dangling link: opening it fails


def _too_large(shown: str, size: int | None, max_bytes: int) -> BrokenFile:
    what = f"has {size:,} bytes" if size is not None else "unpacks to more"
    return BrokenFile(violations.TOO_LARGE.at(shown, f"{what}; the limit is {max_bytes:,} bytes"))


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path`: a temporary file beside it, fsync, rename, fsync of the folder.

    A reader sees the old file or the new one. A writer that is killed leaves a temporary file that no reader takes for a
    checkpoint; `remove_stale` deletes it.

    Args:
        path: The file to create or replace, in an existing folder.
        data: All of its bytes.

    Raises:
        OSError: If the file cannot be written; `path` is then unchanged.
    """
    with replacing(path) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    # Some network file systems cannot sync a folder; the file itself is already safe.
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file beside `path` that replaces it, with its mode, if the block ends without an error.

    Raises:
        OSError: If it cannot be created or moved; `path` is then unchanged.
    """
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME_BYTES])
    # The number separates threads of one process that write the same file.
    temporary = path.with_name(f".{name}.{next(_NUMBERS)}.tmp-{os.getpid()}")
    stream = _created(temporary)
    try:
        with stream:
            with suppress(OSError):  # no file to replace, or a file system without modes
                os.fchmod(stream.fileno(), path.stat().st_mode & 0o777)
            yield stream
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _created(path: Path) -> BinaryIO:
    """Create a new file; an ordinary open would follow a link with that name."""
    try:
        return path.open("xb")
    except FileExistsError:  # left by a killed writer with the same process id
        path.unlink()
        return path.open("xb")


def remove_stale(folder: Path) -> list[str]:
    """Delete the temporary files of writers that no longer run, or that had this process's id; return their names."""
    removed = []
    for path in sorted(folder.iterdir()):
        match = TEMPORARY_NAME.match(path.name)
        if match is None or _lives_elsewhere(int(match["pid"])):
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
        return True  # a live process of another user
    return True


def archive_of(data: bytes) -> str | None:
    """Return the kind of an archive as the end of a sentence; None if it is not a known archive.

    Args:
        data: The first bytes of a file, at least 300 if it has them, after decompression of `.gz` and `.zst`.
    """
    return next((what for at, mark, what in _MARKS if data.startswith(mark, at)), None)


def false_parquet_size(metadata: Any, size: int) -> str | None:
    """Return why a Parquet file would take more memory than its contents; None if it would not.

    The sizes in the footer are checked against each other before reading, because memory is allocated from them. Only facts of
    whole row groups are read: those of a column crash the process if the footer is malformed (pyarrow 26).

    Args:
        metadata: The footer, as pyarrow reads it.
        size: Bytes of the file.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for index, group in enumerate(groups):
        if group.total_byte_size > MAX_BYTES and group.total_byte_size > MAX_RATIO * size:
            return f"row group {index} unpacks {size:,} bytes to {group.total_byte_size:,}; it was not read"
    rows = [group.num_rows for group in groups]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0:
        return f"it is said to have {metadata.num_rows:,} rows, and its parts {sum(rows):,}"
    return None
