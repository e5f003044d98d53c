"""RocksDB tables: blocks of sorted keys, where each key omits the prefix it shares with the previous one, and an index of blocks.

A table is written once and never changed. Its footer has the places of two blocks: the index, with the last key and the place of
each block, and a list of further blocks, of which the one with deletions of ranges is read. Only blocks that can hold keys with a
given prefix are read.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from ckaudit.importers.trackers.crc32c import masked_checksums
from ckaudit.importers.trackers.rocksdb_log import Gone, Version, varint

MAX_KEY = 4096
TRAILER = 8
"""Bytes after each key that hold its sequence number and its kind."""

MAX_UNPACKED = 16 * 2**20
BROKEN = (ValueError, IndexError, struct.error, OSError)
"""Errors from reading a file that is truncated or not a table."""

_FOOTER, _MAGIC = 53, 0x88E241B785F4CFF7
_VERSIONS = range(1, 6)
_PLAIN_INDEX_FROM = 4  # since this version an index entry does not store the length of its value
_TAIL = 5  # after each block: its compression and its checksum
_UNPACKED, _SNAPPY, _CRC32C = 0, 1, 1
_RANGES = b"rocksdb.range_del"
Place = tuple[int, int]


class Table:
    """One table on disk.

    Attributes:
        broken: Number of blocks with a wrong checksum that were left out.
    """

    def __init__(self, path: Path, beginning: bytes) -> None:
        """Read its footer.

        Raises:
            ValueError: Where it is not a table of a known version; see `BROKEN`.
        """
        self._path, self._beginning, self.broken = path, beginning, 0
        self._size = path.stat().st_size
        footer = self._read(self._size - _FOOTER, _FOOTER)
        self._version, magic = struct.unpack_from("<IQ", footer, 41)
        if magic != _MAGIC or self._version not in _VERSIONS:
            raise ValueError("no table of a version that is known")
        self._is_checked = footer[0] == _CRC32C
        offset, place = varint(footer, 1)
        size, place = varint(footer, place)
        self._others = offset, size
        offset, place = varint(footer, place)
        self._index = offset, varint(footer, place)[0]

    @cached_property
    def places(self) -> list[Place]:
        """Places of the blocks that can hold a key with the prefix, in order."""
        block = self._block(self._index)
        entries = _plain_index(block) if self._version >= _PLAIN_INDEX_FROM else _index(block)
        places, before, end = [], b"", 0
        for last, (offset, size) in entries:
            if not end <= offset <= offset + size + _TAIL <= self._size:
                raise ValueError("blocks that lie in each other, or outside of the file")
            if last >= self._beginning and before < self._beginning + b"\xff":
                places.append((offset, size))
            before, end = last, offset + size + _TAIL
        return places

    def size(self) -> int:
        """Return the number of bytes of those blocks on disk."""
        return sum(size for _, size in self.places)

    def gone(self) -> list[Gone]:
        """Return the deletions of ranges."""
        deletions = []
        for name, value in _entries(self._block(self._others)):
            if name == _RANGES:
                offset, place = varint(value, 0)
                block = self._block((offset, varint(value, place)[0]))
                deletions = [(key[:-TRAILER], end, _trailer(key) >> 8) for key, end in _entries(block)]
        return deletions

    def versions(self) -> Iterator[Version]:
        """Yield the table's versions of keys, in key order; nothing where the file no longer exists."""
        if not self.places:
            return
        first, end = self.places[0][0], self.places[-1][0] + self.places[-1][1] + _TAIL
        try:
            data = self._read(first, end - first)
        except BROKEN:
            self.broken += len(self.places)
            return
        for (offset, size), is_right in zip(self.places, self._right(data, first), strict=True):
            try:
                entries = _entries(_plain(data[offset - first : offset - first + size + _TAIL])) if is_right else None
                for key, value in entries or ():
                    yield key[:-TRAILER], -_trailer(key), value
            except BROKEN:
                entries = None
            self.broken += entries is None

    def _right(self, data: bytes, first: int) -> list[bool]:
        """Return for each block whether its checksum is correct, or of a kind that is not computed."""
        if not self._is_checked:
            return [True] * len(self.places)
        raw = np.frombuffer(data, np.uint8)
        places = np.array(self.places, np.int64)
        starts, sizes = places[:, 0] - first, places[:, 1] + 1
        stored_checksums = raw[(starts + sizes)[:, None] + np.arange(4)].copy().view("<u4")[:, 0]
        return [bool(right) for right in masked_checksums(raw, starts, sizes) == stored_checksums]

    def _block(self, place: Place) -> bytes:
        return _plain(self._read(place[0], place[1] + _TAIL))

    def _read(self, offset: int, size: int) -> bytes:
        if not 0 <= offset <= offset + size <= self._size:
            raise ValueError("a place outside of the file")
        with self._path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(size)
        if len(data) < size:
            raise ValueError("a file that became shorter")
        return data


def _plain(block: bytes) -> bytes:
    """Return a block without its tail, decompressed."""
    packing = block[-_TAIL]
    if packing == _UNPACKED:
        return block[:-_TAIL]
    if packing != _SNAPPY:
        raise ValueError(f"a block that is packed in a way of number {packing}, which is not read")
    size, _ = varint(block, 0)
    if size > MAX_UNPACKED:
        raise ValueError(f"a block of {size:,} bytes")
    import pyarrow as pa

    plain: bytes = pa.decompress(block[:-_TAIL], decompressed_size=size, codec="snappy", asbytes=True)
    return plain


def _trailer(key: bytes) -> int:
    """Return the sequence number of a key, with its kind in the lowest byte."""
    return int.from_bytes(key[-TRAILER:], "little")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a block."""
    end, place, key = _end(block), 0, b""
    while place < end:
        shared, fresh, size = block[place], block[place + 1], block[place + 2]
        if (shared | fresh | size) < 0x80:  # nearly always, each is one byte
            place += 3
        else:
            shared, place = varint(block, place)
            fresh, place = varint(block, place)
            size, place = varint(block, place)
        split = place + fresh
        place_after = split + size
        if shared > len(key) or shared + fresh > MAX_KEY or place_after > end:
            raise ValueError("an entry that does not fit")
        key = key[:shared] + block[place:split]
        yield key, block[split:place_after]
        place = place_after


def _index(block: bytes) -> Iterator[tuple[bytes, Place]]:
    """Yield the last key and the place of each block."""
    for key, value in _entries(block):
        offset, place = varint(value, 0)
        yield key, (offset, varint(value, place)[0])


def _plain_index(block: bytes) -> Iterator[tuple[bytes, Place]]:
    """Yield the entries of an index that does not store the lengths of its values."""
    end, place = _end(block), 0
    while place < end:
        shared, place = varint(block, place)
        fresh, place = varint(block, place)
        if shared or fresh > MAX_KEY:
            raise ValueError("an index of another kind")
        key = block[place : place + fresh]
        offset, place = varint(block, place + fresh)
        size, place = varint(block, place)
        yield key, (offset, size)


def _end(block: bytes) -> int:
    """Return where the entries of a block end and its list of restart points begins."""
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * int(count)
    if end < 0:
        raise ValueError("a block of another kind")
    return end
