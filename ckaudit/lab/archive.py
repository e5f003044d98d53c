"""A run folder in one small file: a tar inside zstd, safe to unpack even from an unknown source.

Checkpoints that are compressed individually are unpacked before all are compressed together, which halves the size; `unpack`
compresses them again to the same bytes. If that would not give the same bytes, as for a truncated file, they stay compressed.
"""

import re
import tarfile
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import Any

from ckaudit.contract.io.codec import pack
from ckaudit.errors import UnreadableError

MAX_BYTES = 256 * 2**20  # the largest recording of the lab has 4 MB
MAX_FILES = 10_000
LEVEL = 19  # 0.3 s per run, and 14 % smaller than level 9
MADE, AS_IS, REPACKED = "made.json", "files/", "repacked/"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")


def write(folder: Path, provenance: bytes, path: Path, *, without: tuple[str, ...] = ()) -> int:
    """Pack the files of a folder with their provenance, atomically; return the size in bytes.

    Args:
        folder: The run folder.
        provenance: Data that can be read without unpacking the files.
        path: The archive.
        without: Names of files that are left out.
    """
    import zstandard

    from ckaudit.contract.io.files import write_atomic

    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, MADE, provenance)
        for file in sorted(folder.iterdir()):
            if file.name not in without:
                _add(tar, *_member(file))
    settings = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=25, enable_ldm=True, write_checksum=True)
    data = zstandard.ZstdCompressor(compression_params=settings).compress(out.getvalue())
    write_atomic(path, data)
    return len(data)


def read_provenance(path: Path) -> bytes:
    """Return the provenance in an archive.

    Raises:
        UnreadableError: If the file is no archive of the lab.
    """
    return _read(path, None)


def unpack(path: Path, folder: Path) -> bytes:
    """Write the files of an archive into an existing folder, and return the provenance.

    Raises:
        UnreadableError: If the file is no archive of the lab: truncated, too large, or with links or names that lead outside.
    """
    return _read(path, folder)


def _read(path: Path, folder: Path | None) -> bytes:
    import zstandard

    try:
        with path.open("rb") as packed:
            whole = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(packed)
            with tarfile.open(fileobj=_Bounded(whole, MAX_BYTES), mode="r|") as tar:
                return _files(tar, folder)
    except (OSError, tarfile.TarError, zstandard.ZstdError, ValueError, EOFError) as error:
        raise UnreadableError(f"{path} is no recording of the lab: {error}", hint="delete it, and record it again") from None


def _files(tar: tarfile.TarFile, folder: Path | None) -> bytes:
    provenance: bytes | None = None
    for count, member in enumerate(tar):
        if member.type != tarfile.REGTYPE or count > MAX_FILES:
            raise ValueError(f"{member.name!r} is not a plain file" if count <= MAX_FILES else "too many files")
        stream = tar.extractfile(member)
        data = stream.read() if stream else b""
        if len(data) != member.size:
            raise ValueError("it ends in the middle")
        if member.name == MADE:
            provenance = data
            if folder is None:
                break
        elif folder is not None:
            _write(folder, member.name, data)
    if provenance is None:
        raise ValueError("it does not say what made it")
    return provenance


def _write(folder: Path, stored: str, data: bytes) -> None:
    prefix, name = next(
        ((prefix, stored.removeprefix(prefix)) for prefix in (AS_IS, REPACKED) if stored.startswith(prefix)), ("", stored)
    )
    if not prefix or not _NAME.fullmatch(name):
        raise ValueError(f"{stored!r} has no place in a run folder")
    with (folder / name).open("xb") as stream:  # refuses a duplicate or existing name
        stream.write(pack(data, ".json.zst") if prefix == REPACKED else data)


def _member(file: Path) -> tuple[str, bytes]:
    """Return the name in the archive, and the bytes, unpacked if compressing them again gives the original."""
    data = file.read_bytes()
    if file.name.endswith(".json.zst") and (plain := _unpacked(data)) is not None and pack(plain, ".json.zst") == data:
        return REPACKED + file.name, plain
    return AS_IS + file.name, data


def _unpacked(data: bytes) -> bytes | None:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_BYTES)
    except zstandard.ZstdError:
        return None


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(data)
    tar.addfile(about, BytesIO(data))


class _Bounded(RawIOBase):
    """A stream that raises if it returns more than it may."""

    def __init__(self, stream: Any, max_bytes: int) -> None:
        self._stream, self._left = stream, max_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("it unpacks to more than a recording has")
        return data
