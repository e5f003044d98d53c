"""TensorBoard event files: records of a length, its checksum, an event and its checksum.

A record is valid where both checksums are correct. A wrong length ends the reading, because the start of the next record is then
unknown; a wrong event only loses that event. TensorBoard's own loader computes checksums byte by byte in Python where TensorFlow
is not installed; here those of a whole file are computed at once.
"""

import struct
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from ckaudit.importers.trackers.crc32c import masked_checksums
from ckaudit.importers.trackers.points import Floats
from ckaudit.importers.trackers.protobuf_messages import message_classes

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


class EventRecords(Struct, frozen=True):
    """The events of a file.

    Attributes:
        events: Start and end of each event.
        torn: Number of bytes at the end that do not form a whole record.
        broken: Number of records with a wrong checksum.
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
    """Return start and length of each record, and where the last whole one ends; lengths are not verified yet."""
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
    """Return the number in a tensor, or None where it does not hold exactly one."""
    if tensor.tensor_shape.dim:
        return None
    reader, content = _SCALARS.get(tensor.dtype), tensor.tensor_content
    if reader is not None and len(content) == reader.size:
        return float(reader.unpack(content)[0])
    cells = cells_of(tensor)
    return float(cells.flat[0]) if cells is not None and cells.size == 1 else None


def cells_of(tensor: Any) -> Floats | None:
    """Return a tensor's numbers in its shape, or None where it has none or their count does not match the shape."""
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
