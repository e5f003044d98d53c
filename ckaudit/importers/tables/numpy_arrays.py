"""Arrays in NumPy's own formats, `.npy` and `.npz`: no code in them is run, and the decompressed size is limited."""

import io
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.io.folder import shown_name
from ckaudit.errors import UnreadableError
from ckaudit.importers.names import writable

MAX_BYTES = 2**28
"""Maximum decompressed size of all arrays, as declared by their archive."""

ARRAY = b"\x93NUMPY"
ARCHIVE = b"PK\x03\x04"
WRITE_CSV = "Write its series to a CSV file with a header line."
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError, EOFError, OSError)
"""Errors from reading a broken archive; RuntimeError if it is encrypted."""


def names_of_arrays(data: bytes) -> list[str]:
    """Return the names of the arrays in an archive; none where it is broken."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [name for name in archive.namelist() if name.endswith(".npy")]
    except BROKEN_ARCHIVE:
        return []


def unpacked(data: bytes, shown: str) -> dict[str, NDArray[np.float64]]:
    """Return the arrays of an archive by their names.

    Raises:
        UnreadableError: Where the archive is broken or too large, or an array holds no numbers.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise UnreadableError(
                    f"{shown} holds more than {MAX_BYTES:,} bytes of arrays", hint="Write its series to a CSV file."
                )
            packed = {name: archive.read(name) for name in archive.namelist() if name.endswith(".npy")}
    except BROKEN_ARCHIVE as error:
        raise UnreadableError(f"{shown} is no archive that can be read: {error}", hint="Fetch it again.") from None
    return {
        writable(name.removesuffix(".npy")): array_of(member, f"{shown_name(name)} of {shown}") for name, member in packed.items()
    }


def array_of(data: bytes, shown: str) -> NDArray[np.float64]:
    """Return an array from NumPy's own format, without running any code in it.

    Raises:
        UnreadableError: Where it holds no numbers, or its header declares more of them than there are bytes.
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = header(stream)
        size = int(np.prod(shape, dtype=np.float64))
        if kind.hasobject or kind.kind not in "fiub":
            raise UnreadableError(f"{shown} holds no numbers", hint=WRITE_CSV)
        if size * kind.itemsize > len(data) - stream.tell():
            raise UnreadableError(f"{shown} is cut off: its header says {size:,} numbers", hint="Fetch it again.")
        return np.frombuffer(data, kind, size, stream.tell()).reshape(-1 if len(shape) == 1 else shape).astype(np.float64)
    except (ValueError, EOFError, TypeError) as error:
        raise UnreadableError(f"{shown} is no array that can be read: {error}", hint=WRITE_CSV) from None
