"""Protocol buffer fields and TensorFlow records, for files that need no library to be written.

A record is a length, its checksum, the bytes, and theirs: CRC-32C (Castagnoli, RFC 3720, appendix B.4), rotated by 15 bits
with a constant added, as in TensorFlow's record format.
"""

import struct
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_CASTAGNOLI, _MASK = 0x82F63B78, 0xA282EAD8


def varint(number: int, value: int) -> bytes:
    """Return a field that holds a whole number from 0 on.

    >>> varint(2, 300).hex()
    '10ac02'
    """
    return bytes([number << 3]) + _varint(value)


def fixed(number: int, value: bytes) -> bytes:
    """Return a field of eight bytes."""
    return bytes([number << 3 | 1]) + value


def field(number: int, value: bytes) -> bytes:
    """Return a field of bytes, a message within a message included."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def double(value: float) -> bytes:
    """Return a number as eight bytes."""
    return struct.pack("<d", value)


def framed(events: "Bytes | Sequence[bytes]") -> bytes:
    """Return events of one length as records: an array of shape (N, L), or one event."""
    rows = events if isinstance(events, np.ndarray) else np.frombuffer(b"".join(events), np.uint8).reshape(len(events), -1)
    count, size = rows.shape
    length = np.frombuffer(struct.pack("<Q", size), np.uint8)
    records = np.empty((count, size + 16), np.uint8)
    records[:, :8] = length
    records[:, 8:12] = _little(masked(length[None, :]))
    records[:, 12:-4] = rows
    records[:, -4:] = _little(masked(rows))
    return records.tobytes()


def masked(rows: Bytes) -> NDArray[np.uint32]:
    """Return the masked checksum of each row of an array of shape (N, L).

    >>> int(masked(np.zeros((1, 32), np.uint8))[0]) == (((0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    True
    """
    table = _table()
    check = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        check = table[(check ^ column) & 0xFF] ^ (check >> np.uint32(8))
    check = ~check
    rotated = (check >> np.uint32(15)) | (check << np.uint32(17))
    return (rotated + np.uint32(_MASK)).astype(np.uint32)


def _little(checks: NDArray[np.uint32]) -> Bytes:
    return np.ascontiguousarray(checks, "<u4").view(np.uint8).reshape(-1, 4)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


@cache
def _table() -> NDArray[np.uint32]:
    """Return the remainder of every byte."""
    made = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        made.append(value)
    return np.array(made, np.uint32)
