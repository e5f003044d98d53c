"""CRC-32C of many records at once, masked as TensorFlow, LevelDB and RocksDB store it.

The polynomial is Castagnoli's, reflected (RFC 3720, appendix B.4). The checksum is linear in the bytes: once the start value is
added to the first four bytes, zeros before a record change nothing. Records of different lengths are therefore right-aligned in
one matrix.
"""

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Whole = NDArray[np.int64]
_POLYNOMIAL = 0x82F63B78
_WIDTHS = (8, 48, 64, 96, 128, 256, 512)
_ROW = _WIDTHS[-1]
_ROWS_AT_ONCE = 8192
_FIRST = 4
_MASK = 0xA282EAD8  # added by these formats, so that a checksum of checksums is not zero


def masked_checksums(data: NDArray[np.uint8], starts: Whole, lengths: Whole) -> Words:
    """Return the checksum of each record as TensorFlow, LevelDB and RocksDB store it.

    Args:
        data: The whole file.
        starts: Shape (N,); where each record begins.
        lengths: Shape (N,); its length in bytes, at least one.

    Returns:
        Shape (N,).

    >>> hex(int(masked_checksums(np.frombuffer(b"123456789", np.uint8), np.array([0]), np.array([9]))[0]))
    '0xc78ab0e5'
    """
    padded = np.concatenate([np.zeros(_ROW, np.uint8), data])
    sums = np.zeros(len(starts), np.uint32)
    narrower = _FIRST - 1
    for width in _WIDTHS:
        members = np.flatnonzero((lengths > narrower) & (lengths <= width))
        for part in _batches(members):
            sums[part] = _rows(padded, starts[part] + lengths[part] + _ROW, lengths[part], width, lengths[part] - _FIRST)
        narrower = width
    too_short = (lengths - 1) % _ROW + 1 < _FIRST  # the start value reaches past the first row: computed one by one
    for index in np.flatnonzero(too_short):
        sums[index] = _plain(data[starts[index] : starts[index] + lengths[index]])
    long = np.flatnonzero((lengths > _ROW) & ~too_short)
    sums[long] = _long(padded, starts[long] + _ROW, lengths[long])
    plain = ~sums
    return ((plain >> np.uint32(15)) | (plain << np.uint32(17))) + np.uint32(_MASK)


def _batches(rows: Whole) -> list[Whole]:
    """Return the rows in batches that are computed at once; no batches where there are no rows."""
    return [rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)]


def _rows(padded: NDArray[np.uint8], ends: Whole, lengths: Whole, width: int, turned: Whole) -> Words:
    """Return the state after each row; `turned` is the distance from its end to the four bytes that take the start value."""
    rows = sliding_window_view(padded, width)[ends - width]
    rows = rows * (np.arange(width) >= (width - lengths)[:, None])
    has_start = np.flatnonzero(turned >= 0)
    for offset in range(_FIRST):
        rows[has_start, width - _FIRST - turned[has_start] + offset] ^= 0xFF
    words = np.ascontiguousarray(rows).view("<u4")
    near, next_, far, farthest = _tables()
    state = np.zeros(len(words), np.uint32)
    for column in words.T:
        state = state ^ column
        state = (
            farthest[state & np.uint32(0xFF)]
            ^ far[(state >> np.uint32(8)) & np.uint32(0xFF)]
            ^ next_[(state >> np.uint32(16)) & np.uint32(0xFF)]
            ^ near[state >> np.uint32(24)]
        )
    return state


def _long(padded: NDArray[np.uint8], starts: Whole, lengths: Whole) -> Words:
    """Return the state after each record of several rows, from the states of its rows, each shifted past the later rows."""
    counts = -(-lengths // _ROW)
    owners = np.repeat(np.arange(len(counts)), counts)
    after = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(owners))
    is_first = after == counts[owners] - 1
    ends = (starts + lengths)[owners] - after * _ROW
    sizes = np.where(is_first, (lengths - (counts - 1) * _ROW)[owners], _ROW)
    turned = np.where(is_first, sizes - _FIRST, -1)
    states: list[int] = []
    for part in _batches(np.arange(len(owners))):
        states += _rows(padded, ends[part], sizes[part], _ROW, turned[part]).tolist()
    shifts = _past_a_row()
    sums = [0] * len(counts)
    for owner, row_state in zip(owners.tolist(), states, strict=True):
        state = sums[owner]
        sums[owner] = (
            shifts[0][state & 0xFF]
            ^ shifts[1][(state >> 8) & 0xFF]
            ^ shifts[2][(state >> 16) & 0xFF]
            ^ shifts[3][state >> 24]
            ^ row_state
        )
    return np.array(sums, np.uint32)


def _plain(record: NDArray[np.uint8]) -> int:
    near = _tables()[0].tolist()
    state = 0xFFFFFFFF
    for byte in record.tolist():
        state = near[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


@cache
def _tables() -> tuple[Words, Words, Words, Words]:
    """Return the effect of a byte on the state when 0, 1, 2 or 3 more bytes follow it."""
    near = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        near = np.where(near & np.uint32(1), (near >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), near >> np.uint32(1))
    tables = [near]
    for _ in range(3):
        last = tables[-1]
        tables.append(near[last & np.uint32(0xFF)] ^ (last >> np.uint32(8)))
    return tables[0], tables[1], tables[2], tables[3]


@cache
def _past_a_row() -> list[list[int]]:
    """Return the effect of a row of zeros on each byte of the state, lowest byte first."""
    near = _tables()[0]
    moved = []
    for shift in (0, 8, 16, 24):
        state = np.arange(256, dtype=np.uint32) << np.uint32(shift)
        for _ in range(_ROW):
            state = near[state & np.uint32(0xFF)] ^ (state >> np.uint32(8))
        moved.append(state.tolist())
    return moved
