"""Finding a run's files and reading their bytes, safely: sizes are bounded, links stay inside, compression is undone."""

import gzip
import os
import re
import zlib
from io import FileIO
from pathlib import Path
from stat import S_ISREG

from ckaudit.contract import violations
from ckaudit.contract.report import Finding

MAX_BYTES = 64 * 2**20  # the largest complete checkpoint measured, every grid in full digits, has 15 MB

CHECKPOINT_NAME = re.compile(
    r"^analysis_checkpoint_(?:step_)?(?P<step>\d{1,18})?(?P<label>.*?)"
    r"(?:\.session(?P<session>\d+))?(?:\.rank(?P<rank>\d+))?\.json(?:\.gz|\.zst)?$",
    re.DOTALL,
)
SCALARS_NAME = re.compile(r"^scalars.*\.jsonl(?:\.gz|\.zst)?$", re.DOTALL)
MANIFEST_NAME = "run.json"


class BrokenFile(Exception):  # noqa: N818  never seen by a user: it carries the finding that will be
    """A file whose bytes cannot be had."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def checkpoint_file_name(step: int, suffix: str = ".json") -> str:
    """Return the name of the checkpoint of `step`.

    >>> checkpoint_file_name(500)
    'analysis_checkpoint_step_00000500.json'
    """
    return f"analysis_checkpoint_step_{step:08d}{suffix}"


def read_bytes(path: Path, shown: str, *, root: Path | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the uncompressed bytes of `path`.

    Args:
        path: The file; `.gz` and `.zst` are unpacked.
        shown: Its name in findings.
        root: The folder it must not leave by a link.
        max_bytes: Largest size, packed or unpacked.

    Raises:
        BrokenFile: With the finding that says why there are no bytes.
    """
    if root is not None and path.is_symlink() and not _inside(path, root):
        raise BrokenFile(violations.LINK_OUTSIDE.at(shown, "the file is a link that leads out of the folder"))
    try:
        # A pipe would block an ordinary open for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BrokenFile(violations.UNREADABLE.at(shown, f"cannot be opened: {error.strerror or error}")) from None
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        data = _read_regular(stream, shown, max_bytes)
    if path.suffix in (".gz", ".zst"):
        data = _unpack(data, path.suffix, shown, max_bytes)
    return data


def _read_regular(stream: FileIO, shown: str, max_bytes: int) -> bytes:
    status = os.fstat(stream.fileno())
    if not S_ISREG(status.st_mode):
        raise BrokenFile(violations.UNREADABLE.at(shown, "this is not a regular file"))
    if status.st_size > max_bytes:
        raise _too_large(shown, status.st_size, max_bytes)
    try:
        return stream.readall()
    except OSError as error:
        raise BrokenFile(violations.UNREADABLE.at(shown, f"cannot be read: {error.strerror or error}")) from None


def _inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return True  # a loop or a dangling link: opening it says so


def _unpack(data: bytes, suffix: str, shown: str, max_bytes: int) -> bytes:
    try:
        unpacked = _gunzip(data, max_bytes) if suffix == ".gz" else _unzstd(data, max_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise BrokenFile(violations.BAD_COMPRESSION.at(shown, f"cannot be unpacked: {error}")) from None
    if len(unpacked) > max_bytes:
        raise _too_large(shown, None, max_bytes)
    return unpacked


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    from io import BytesIO

    with gzip.GzipFile(fileobj=BytesIO(data)) as stream:
        return stream.read(max_bytes + 1)


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(data, read_across_frames=True) as stream:
            unpacked = stream.read(max_bytes + 1)
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from None
    if data and not unpacked:
        raise EOFError("the frame ends in the middle")
    return unpacked


def _too_large(shown: str, size: int | None, max_bytes: int) -> BrokenFile:
    what = f"has {size:,} bytes" if size is not None else "unpacks to more"
    return BrokenFile(violations.TOO_LARGE.at(shown, f"{what}; the limit is {max_bytes:,} bytes"))
