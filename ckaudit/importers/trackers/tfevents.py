"""Event files of TensorBoard: records of a length, its checksum, an event and the checksum of that.

A record is sound where its two checksums are right. A wrong length ends the reading, since nothing tells where the next record
begins; a wrong event is one event less. TensorBoard's own loader computes checksums byte by byte in Python where TensorFlow is
not installed; here those of a whole file are computed at once.

The checksum is CRC-32C: Castagnoli's polynomial, reflected (RFC 3720, appendix B.4). It is linear in the bytes: once the start
value is added to the first four of them, zeros before a record change nothing, so that records of many lengths stand
right-aligned in one matrix.
"""

import struct
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ckaudit.importers.trackers.messages import message_classes
from ckaudit.importers.trackers.points import Floats

Words = NDArray[np.uint32]
Whole = NDArray[np.int64]
MARK = b"brain.Event:"
START = 1  # SessionLog.SessionStatus
STRING, _BFLOAT16, _HALF = 7, 14, 19
_HEAD_BYTES, _TAIL_BYTES = 12, 4
_MESSAGES = {
    "Event": {1: ("wall_time", "double"), 2: ("step", "int64"), 5: ("summary", "Summary"), 7: ("session_log", "SessionLog")},
    "SessionLog": {1: ("status", "int32")},
    "Summary": {1: ("value", "*Value")},
    "Value": {
        1: ("tag", "bytes"),
        2: ("simple_value", "float"),
        5: ("histo", "Histo"),
        7: ("node_name", "bytes"),
        8: ("tensor", "Tensor"),
        9: ("metadata", "Metadata"),
    },
    "Histo": {
        1: ("min", "double"),
        2: ("max", "double"),
        3: ("num", "double"),
        4: ("sum", "double"),
        5: ("sum_squares", "double"),
        6: ("bucket_limit", "*double"),
        7: ("bucket", "*double"),
    },
    "Tensor": {
        1: ("dtype", "int32"),
        2: ("tensor_shape", "Shape"),
        4: ("tensor_content", "bytes"),
        5: ("float_val", "*float"),
        6: ("double_val", "*double"),
        7: ("int_val", "*int32"),
        8: ("string_val", "*bytes"),
        10: ("int64_val", "*int64"),
        13: ("half_val", "*int32"),
    },
    "Shape": {2: ("dim", "*Dim")},
    "Dim": {1: ("size", "int64")},
    "Metadata": {1: ("plugin_data", "Plugin")},
    "Plugin": {1: ("plugin_name", "bytes"), 2: ("content", "bytes")},
    "Hparams": {3: ("session_start_info", "SessionStart")},
    "SessionStart": {1: ("hparams", "*Hparam")},
    "Hparam": {1: ("key", "bytes"), 2: ("value", "Setting")},
    "Setting": {2: ("number_value", "double"), 3: ("string_value", "bytes"), 4: ("bool_value", "bool")},
}
_NUMBERS = {
    1: ("<f4", "float_val"),
    2: ("<f8", "double_val"),
    3: ("<i4", "int_val"),
    9: ("<i8", "int64_val"),
    19: ("<f2", "half_val"),
}
_SCALARS = {
    1: struct.Struct("<f"),
    2: struct.Struct("<d"),
    3: struct.Struct("<i"),
    9: struct.Struct("<q"),
    19: struct.Struct("<e"),
}
_MAX_CELLS = 2**20
_POLYNOMIAL = 0x82F63B78
_WIDTHS = (8, 48, 64, 96, 128, 256, 512)
_ROW = _WIDTHS[-1]
_ROWS_AT_ONCE = 8192
_FIRST = 4
_MASK = 0xA282EAD8  # added by the format, so that a checksum of checksums does not vanish


class EventRecords(Struct, frozen=True):
    """The events of a file.

    Attributes:
        events: Where each begins and ends.
        torn: Bytes at the end that are no whole record.
        broken: Records whose checksum is wrong.
    """

    events: list[tuple[int, int]]
    torn: int
    broken: int


def records(data: bytes) -> EventRecords:
    """Find the events of a file."""
    starts, lengths, end = _framed(data)
    if not starts:
        return EventRecords([], len(data), 0)
    raw = np.frombuffer(data, np.uint8)
    first, size = np.array(starts), np.array(lengths)
    right = masked_checksums(raw, first - _HEAD_BYTES, np.full(len(first), 8)) == _word(raw, first - _TAIL_BYTES)
    wrong = np.flatnonzero(~right)
    if len(wrong):
        end = starts[wrong[0]] - _HEAD_BYTES
        first, size = first[: wrong[0]], size[: wrong[0]]
    whole = masked_checksums(raw, first, size) == _word(raw, first + size)
    good = [(start, start + length) for start, length in zip(first[whole].tolist(), size[whole].tolist(), strict=True)]
    return EventRecords(good, len(data) - end, len(first) - len(good))


def _framed(data: bytes) -> tuple[list[int], list[int], int]:
    """Return where records begin, how long they are, and where the last whole one ends; lengths are not checked yet."""
    starts, lengths = [], []
    place, end = 0, len(data)
    unpack = struct.Struct("<Q").unpack_from
    while place + _HEAD_BYTES + _TAIL_BYTES <= end:
        (length,) = unpack(data, place)
        if not 4 <= length <= end - place - _HEAD_BYTES - _TAIL_BYTES:
            break
        starts.append(place + _HEAD_BYTES)
        lengths.append(length)
        place += length + _HEAD_BYTES + _TAIL_BYTES
    return starts, lengths, place


def _word(raw: np.ndarray[Any, np.dtype[np.uint8]], places: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, Any]:
    words: np.ndarray[Any, Any] = raw[places[:, None] + np.arange(4)].copy().view("<u4")[:, 0]
    return words


@cache
def messages() -> dict[str, Any]:
    """Return the classes of an event and its parts.

    Raises:
        UsageError: Where protobuf is not installed.
    """
    return message_classes("tensorboard", _MESSAGES, extra="tensorboard", what="TensorBoard event files")


def scalar_of(tensor: Any) -> float | None:
    """Return the number of a tensor, None where it does not hold exactly one."""
    if tensor.tensor_shape.dim:
        return None
    reader, content = _SCALARS.get(tensor.dtype), tensor.tensor_content
    if reader is not None and len(content) == reader.size:
        return float(reader.unpack(content)[0])
    cells = cells_of(tensor)
    return float(cells.flat[0]) if cells is not None and cells.size == 1 else None


def cells_of(tensor: Any) -> Floats | None:
    """Return a tensor's numbers in its shape, None where it holds none or another number than its shape asks for."""
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if any(size < 0 for size in shape) or (count := int(np.prod(shape, dtype=object)) if shape else 1) > _MAX_CELLS:
        return None
    cells = _flat(tensor)
    if cells is None or not (len(cells) == count or (count and len(cells) == 1)):
        return None
    return np.broadcast_to(cells, count).reshape(shape).astype(np.float64)


def _flat(tensor: Any) -> "np.ndarray[Any, Any] | None":
    content = tensor.tensor_content
    if tensor.dtype == _BFLOAT16:
        halves = np.frombuffer(content, "<u2") if content and len(content) % 2 == 0 else _halves(tensor)
        return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if tensor.dtype not in _NUMBERS:
        return None
    kind, field = _NUMBERS[tensor.dtype]
    if content:
        return np.frombuffer(content, kind) if len(content) % np.dtype(kind).itemsize == 0 else None
    return _halves(tensor).view(np.float16) if tensor.dtype == _HALF else np.array(getattr(tensor, field), np.float64)


def _halves(tensor: Any) -> "np.ndarray[Any, Any]":
    return (np.array(tensor.half_val, np.int64) & 0xFFFF).astype(np.uint16)


def masked_checksums(data: NDArray[np.uint8], starts: Whole, lengths: Whole) -> Words:
    """Return the checksum of each record as an event file stores it.

    Args:
        data: The whole file.
        starts: Shape (N,); where each record begins.
        lengths: Shape (N,); at least 4 bytes each.

    Returns:
        Shape (N,).

    >>> hex(int(masked_checksums(np.frombuffer(b"123456789", np.uint8), np.array([0]), np.array([9]))[0]))
    '0xc78ab0e5'
    """
    padded = np.concatenate([np.zeros(_ROW, np.uint8), data])
    sums = np.zeros(len(starts), np.uint32)
    narrower = 0
    for width in _WIDTHS:
        members = np.flatnonzero((lengths > narrower) & (lengths <= width))
        for part in np.array_split(members, -(-len(members) // _ROWS_AT_ONCE) or 1):
            sums[part] = _rows(padded, starts[part] + lengths[part] + _ROW, lengths[part], width, lengths[part] - _FIRST)
        narrower = width
    for index in np.flatnonzero(lengths > _ROW):
        sums[index] = _long(padded, int(starts[index]) + _ROW, int(lengths[index]))
    plain = ~sums
    return ((plain >> np.uint32(15)) | (plain << np.uint32(17))) + np.uint32(_MASK)


def _rows(padded: NDArray[np.uint8], ends: Whole, lengths: Whole, width: int, turned: Whole) -> Words:
    """Return the state after each row; `turned` is how far before its end the four bytes lie that take the start value."""
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


def _long(padded: NDArray[np.uint8], start: int, length: int) -> int:
    """Return the state after one long record, from the states of its rows, each moved past the rows after it."""
    ends = np.arange(start + length, start, -_ROW)[::-1]
    lengths = np.minimum(_ROW, ends - start)
    turned = np.full(len(ends), -1)
    turned[0] = lengths[0] - _FIRST
    if lengths[0] < _FIRST:  # the start value reaches into the second row: one by one instead
        return _plain(padded[start : start + length])
    states = _rows(padded, ends, lengths, _ROW, turned).tolist()
    shifts = _past_a_row()
    state = 0
    for row_state in states:
        state = (
            shifts[0][state & 0xFF]
            ^ shifts[1][(state >> 8) & 0xFF]
            ^ shifts[2][(state >> 16) & 0xFF]
            ^ shifts[3][state >> 24]
            ^ row_state
        )
    return state


def _plain(record: NDArray[np.uint8]) -> int:
    near = _tables()[0].tolist()
    state = 0xFFFFFFFF
    for byte in record.tolist():
        state = near[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


@cache
def _tables() -> tuple[Words, Words, Words, Words]:
    """Return what a byte does to the state when 0, 1, 2 or 3 more bytes follow it."""
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
    """Return what a row of zeros does to each byte of the state, the lowest first."""
    near = _tables()[0]
    moved = []
    for shift in (0, 8, 16, 24):
        state = np.arange(256, dtype=np.uint32) << np.uint32(shift)
        for _ in range(_ROW):
            state = near[state & np.uint32(0xFF)] ^ (state >> np.uint32(8))
        moved.append(state.tolist())
    return moved
