"""RocksDB logs: the writes since the last table, and the manifest, which names the current tables.

A log consists of blocks of 32 KiB with pieces of records, each with its length, its kind (whole, first, middle, last) and a
CRC-32C over kind and bytes. It is read up to the first invalid piece, as RocksDB does after a crash.
"""

import struct
from array import array

import numpy as np
from msgspec import Struct, field

from ckaudit.importers.trackers.crc32c import Whole, masked_checksums

PUT = 1
"""The kind of a version that holds a value; versions of other kinds are deletions."""

Version = tuple[bytes, int, bytes]
"""A key; the negative of its sequence number with the kind in the lowest byte; its value."""

Gone = tuple[bytes, bytes, int]
"""A deleted range of keys, its end excluded, and the sequence number of the deletion."""

_BLOCK, _HEAD = 32768, 7
_PIECE = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH = struct.Struct("<QI")
_DELETION, _NOTE, _SINGLE_DELETION, _RANGE_DELETION = 0, 3, 7, 15
_TEXTS_OF = {_DELETION: 1, PUT: 2, _NOTE: 1, _SINGLE_DELETION: 1, _RANGE_DELETION: 2}
_LOG_NUMBER, _COMPACTION, _DELETED_FILE, _NEW_FILE = 2, 5, 6, 103
_NUMBERS, _TEXTS = {_LOG_NUMBER, 3, 4, 9, 10, 203}, {1, 201}
_IGNORED = 1 << 13  # tags with this bit have a length, so that older programs can skip them
_END_OF_FILE = 1


class Writes(Struct):
    """The writes in a log, in no order.

    Attributes:
        versions: Values and deletions of keys.
        gone: Deletions of ranges.
        is_torn: Whether it ends in an incomplete record.
    """

    versions: list[Version] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    is_torn: bool = False


class DatabaseManifest(Struct):
    """The current files according to a manifest.

    Attributes:
        bounds: The first and the last key of each table, by its number.
        log_number: The first log that is not contained in the tables.
    """

    bounds: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    log_number: int = 0


class _Cursor:
    """Reads numbers and texts of a record in sequence."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self._place = data, place

    def is_within(self) -> bool:
        return self._place < len(self._data)

    def number(self) -> int:
        value, self._place = varint(self._data, self._place)
        return value

    def text(self) -> bytes:
        size = self.number()
        self._place += size
        if self._place > len(self._data):
            raise IndexError("a text that is cut off")
        return self._data[self._place - size : self._place]


def read_writes(data: bytes) -> Writes:
    """Return the writes of a log, whose records have a sequence number, a count, and that many writes with increasing numbers."""
    records, is_torn = _records(data)
    writes = Writes(is_torn=is_torn)
    for record in records:
        try:
            _take_batch(writes, record)
        except (struct.error, IndexError, ValueError):
            writes.is_torn = True
            break
    return writes


def _take_batch(writes: Writes, record: bytes) -> None:
    number, _ = _BATCH.unpack_from(record)
    cursor = _Cursor(record, _BATCH.size)
    while cursor.is_within():
        kind = cursor.number()
        if kind not in _TEXTS_OF:
            raise ValueError(f"a write of kind {kind}")
        texts = [cursor.text() for _ in range(_TEXTS_OF[kind])]
        if kind == _NOTE:
            continue
        if kind == _RANGE_DELETION:
            writes.gone.append((texts[0], texts[1], number))
        else:
            writes.versions.append((texts[0], -(number << 8 | kind), texts[-1] if kind == PUT else b""))
        number += 1


def read_manifest(data: bytes) -> DatabaseManifest:
    """Return the current tables.

    Raises:
        ValueError: Where there is no record, or a record holds an unknown entry.
        IndexError: Where a record is truncated.
    """
    manifest, (records, _) = DatabaseManifest(), _records(data)
    if not records:
        raise ValueError("a manifest without a record")
    for record in records:
        cursor = _Cursor(record)
        while cursor.is_within():
            _take_edit(manifest, cursor)
    return manifest


def _take_edit(manifest: DatabaseManifest, cursor: _Cursor) -> None:
    tag = cursor.number()
    if tag == _NEW_FILE:
        _, number, _ = cursor.number(), cursor.number(), cursor.number()
        manifest.bounds[number] = cursor.text(), cursor.text()
        _, _ = cursor.number(), cursor.number()
        while cursor.number() != _END_OF_FILE:
            cursor.text()
    elif tag == _DELETED_FILE:
        cursor.number()
        manifest.bounds.pop(cursor.number(), None)
    elif tag == _COMPACTION:
        cursor.number()
        cursor.text()
    elif tag in _NUMBERS:
        number = cursor.number()
        manifest.log_number = number if tag == _LOG_NUMBER else manifest.log_number
    elif tag in _TEXTS or tag & _IGNORED:
        cursor.text()
    else:
        raise ValueError(f"an edit of kind {tag}")


def _records(data: bytes) -> tuple[list[bytes], bool]:
    """Return the whole records of a log, and whether anything else follows them."""
    places, lengths, kinds, end = _pieces(data)
    sound = _sound(data, np.array(places, np.int64), np.array(lengths, np.int64))
    records: list[bytes] = []
    parts: list[bytes] = []
    for place, length, kind in zip(places[:sound], lengths[:sound], kinds[:sound], strict=True):
        if kind in (_WHOLE, _FIRST):
            parts = []
        parts.append(data[place : place + length])
        if kind in (_WHOLE, _LAST):
            records.append(b"".join(parts))
            parts = []
    return records, bool(parts) or sound < len(places) or bool(data[end:].strip(b"\0"))


def _pieces(data: bytes) -> "tuple[array[int], array[int], array[int], int]":
    """Return start, length and kind of each piece, and where the last piece ends."""
    places, lengths, kinds, place = array("q"), array("q"), array("q"), 0
    while place + _HEAD <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEAD:
            place += left
            continue
        _, length, kind = _PIECE.unpack_from(data, place)
        end = place + _HEAD + length
        if not _WHOLE <= kind <= _LAST or _HEAD + length > left or end > len(data):
            break
        places.append(place + _HEAD)
        lengths.append(length)
        kinds.append(kind)
        place = end
    return places, lengths, kinds, place


def _sound(data: bytes, places: Whole, lengths: Whole) -> int:
    """Return the number of pieces before the first one with a wrong checksum."""
    if not len(places):
        return 0
    raw = np.frombuffer(data, np.uint8)
    stored_checksums = raw[(places - _HEAD)[:, None] + np.arange(4)].copy().view("<u4")[:, 0]
    wrong = np.flatnonzero(masked_checksums(raw, places - 1, lengths + 1) != stored_checksums)
    return int(wrong[0]) if len(wrong) else len(places)


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number stored with seven bits per byte, lowest bits first, and where it ends.

    Raises:
        ValueError: Where it has more than 64 bits.
        IndexError: Where it is truncated.
    """
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # the highest bit means that more bytes follow
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
