"""Files of `torch.save`, read without torch and without unpickling: a zip with a pickle and the bytes of each storage."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

from msgspec import Struct

from ckaudit.resume.catalogue import COMPRESSED, CUT_OFF, DAMAGED
from ckaudit.resume.content import (
    ELEMENTS,
    STORAGES,
    BadPickle,
    ByteRange,
    Content,
    ImportedName,
    PersistentId,
    PickledCall,
    StoredTensor,
    parts,
)
from ckaudit.resume.open_file import FileFault, OpenFile, Unjudged
from ckaudit.resume.pickled import MAX_BYTES, read_pickle

# Files of torch before version 1.6 begin with a pickle of this number.
LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")

MAX_RANK = 64  # NumPy's own limit

_REBUILT = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}

MAGIC = b"PK\x03\x04"

MAX_DIRECTORY = 64 * 2**20  # 600,000 members of 110 bytes

_END, _LOCATOR, _END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")

_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")

_FULL16, _FULL32 = 0xFFFF, 0xFFFF_FFFF


class ZipMember(Struct, frozen=True):
    """One file in a zip.

    Attributes:
        name: Its name.
        offset: Offset of its bytes in the containing file.
        size: Bytes.
        crc: CRC-32 of the bytes; 0: torch did not compute any.
    """

    name: str
    offset: int
    size: int
    crc: int


def read_torch(source: OpenFile, start: int = 0, length: int | None = None) -> Content:
    """Return the content of a file of torch.

    Args:
        source: The file.
        start: Offset, if it is inside another file.
        length: Number of bytes; None: all.

    Raises:
        FileFault: If it is damaged.
        Unjudged: If it is no zip, or its tensors are of an unknown kind.
    """
    size = source.size - start if length is None else length
    head = source.read(start, min(size, len(LEGACY)))
    if not head.startswith(MAGIC):
        raise _not_a_zip(head)
    members = read_directory(source, start, size)
    pickles = [name for name in members if name.rpartition("/")[2] == "data.pkl" and name.count("/") <= 1]
    if len(pickles) != 1:
        raise FileFault(DAMAGED, f"holds {len(pickles)} times data.pkl, where there must be one")
    member = members[pickles[0]]
    if member.size > MAX_BYTES:
        raise FileFault(DAMAGED, f"holds a pickle of {member.size:,} bytes; the limit is {MAX_BYTES:,}")
    root, pickle = pickles[0].removesuffix("data.pkl"), member
    if f"{root}constants.pkl" in members:
        raise Unjudged("is a TorchScript archive, a program and no checkpoint")
    try:
        facts = read_pickle(source.read(pickle.offset, pickle.size))
    except BadPickle as error:
        raise FileFault(DAMAGED, f"holds a broken pickle: {error}") from None
    content = Content(form="torch", value=facts.value, names=facts.names, called=facts.called)
    byte_order = members.get(f"{root}byteorder")
    big = byte_order is not None and source.read(byte_order.offset, min(byte_order.size, 8)) == b"big"
    _Builder(content, members, root, big_endian=big).build(facts.value)
    return content


def _not_a_zip(head: bytes) -> Exception:
    if head.startswith(LEGACY[:11]):
        return Unjudged("is in the format before torch 1.6, which cannot be read without unpickling")
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return Unjudged("is a bare pickle, which cannot be read without unpickling")
    if not head.strip(b"\0"):
        return FileFault(CUT_OFF, "begins with zeros where a torch file should be: its bytes never reached the disk")
    return FileFault(DAMAGED, f"is not a torch file: it begins with {head[:8]!r}")


class _Builder:
    """Finds the tensors in a pickle, and the bytes of each among the members of the zip."""

    def __init__(self, content: Content, members: dict[str, ZipMember], root: str, *, big_endian: bool) -> None:
        self.content, self.members, self.root, self.big = content, members, root, big_endian
        self.at: dict[tuple[str, str], int] = {}

    def build(self, value: Any) -> None:
        for keys, part in parts(value):
            if isinstance(part, PickledCall) and part.made_by in _REBUILT:
                self.content.tensors.append(self.tensor(keys, part))

    def tensor(self, keys: tuple[str, ...], call: PickledCall) -> StoredTensor:
        arguments = call.arguments if isinstance(call.arguments, tuple) else ()
        if len(arguments) < 4 or not isinstance(arguments[0], PersistentId):
            raise FileFault(DAMAGED, f"makes tensor {'.'.join(keys)!r} of what is no storage")
        storage, first, shape, strides = arguments[0].identity, arguments[1], _whole(arguments[2]), _whole(arguments[3])
        third = call.made_by.endswith("_v3") and len(arguments) > 6
        dtype = arguments[6].name if third and isinstance(arguments[6], ImportedName) else _dtype_of(storage)
        element = ELEMENTS.get(dtype)
        if element is None:
            raise Unjudged(f"holds tensors of {dtype}, whose bits are not known")
        if len(shape) != len(strides) or len(shape) > MAX_RANK or not isinstance(first, int) or first < 0:
            raise FileFault(DAMAGED, f"gives tensor {'.'.join(keys)!r} a shape and strides that do not fit")
        span = 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        index = self.range_of(storage, dtype, ".".join(keys))
        room = self.content.ranges[index].size
        if (first + span) * element.size > room:
            needed = (first + span) * element.size
            raise FileFault(CUT_OFF, f"stores {room:,} bytes for tensor {'.'.join(keys)!r}, which needs {needed:,}")
        return StoredTensor(
            keys=keys,
            shape=shape,
            dtype=dtype,
            at=index,
            first=first * element.size,
            size=span * element.size,
            needs=min(prod(shape), span) * element.size,
        )

    def range_of(self, storage: Any, dtype: str, name: str) -> int:
        key = str(storage[2]) if isinstance(storage, tuple) and len(storage) >= 5 and isinstance(storage[2], (str, int)) else None
        member = None if key is None else self.members.get(f"{self.root}data/{key}")
        if key is None or member is None:
            raise FileFault(DAMAGED, f"does not hold the bytes of tensor {name!r}")
        if (key, dtype) not in self.at:
            self.at[key, dtype] = len(self.content.ranges)
            self.content.ranges.append(
                ByteRange(offset=member.offset, size=member.size, dtype=dtype, crc=member.crc or None, big_endian=self.big)
            )
        return self.at[key, dtype]


def _whole(value: Any) -> tuple[int, ...]:
    """Return a shape or strides; an empty tensor of rank 0 if a subclass was saved as a call."""
    arguments = value.arguments if isinstance(value, PickledCall) else value
    if isinstance(arguments, tuple) and len(arguments) == 1 and isinstance(arguments[0], tuple):
        arguments = arguments[0]  # torch.Size((2, 3))
    if not isinstance(arguments, (tuple, list)) or not all(type(size) is int and 0 <= size < 2**63 for size in arguments):
        raise FileFault(DAMAGED, "holds a tensor whose shape is no list of whole numbers")
    return tuple(arguments)


def _dtype_of(storage: Any) -> str:
    kind = storage[1] if isinstance(storage, tuple) and len(storage) >= 2 else None
    name = kind.name if isinstance(kind, ImportedName) else "no storage"
    return STORAGES.get(name, name)


def storages(content: Content) -> Iterator[tuple[int, list[StoredTensor]]]:
    """Yield each range of a file in the order of its bytes, with the tensors in it."""
    by_range: dict[int, list[StoredTensor]] = {}
    for tensor in content.tensors:
        by_range.setdefault(tensor.at, []).append(tensor)
    for index in sorted(by_range, key=lambda place: content.ranges[place].offset):
        yield index, by_range[index]


# The directory of a zip file, or of one inside a larger file: the offset of each member's bytes.  The layout is that of PKWARE's
# APPNOTE 6.3.10: local headers with the data, a central directory, and its end record.
def read_directory(source: OpenFile, start: int, length: int) -> dict[str, ZipMember]:
    """Return the members of the zip in a range of a file, by name.

    Raises:
        FileFault: If the zip is truncated, damaged or compressed.
    """
    count, size, offset = _end(source, start, length)
    if size > MAX_DIRECTORY or size > length or offset > length - size:
        raise FileFault(DAMAGED, f"has a directory of {size:,} bytes at {offset:,}, which cannot be")
    members: dict[str, ZipMember] = {}
    for entry in _entries(source.read(start + offset, size), count):
        if entry.name in members:
            raise FileFault(DAMAGED, f"holds {entry.name!r} twice")
        if entry.offset > length - _LOCAL.size:
            raise FileFault(CUT_OFF, f"member {entry.name!r} begins after the end")
        signature, *_, name_size, extra_size = _LOCAL.unpack(source.read(start + entry.offset, _LOCAL.size))
        if signature != MAGIC:
            raise FileFault(DAMAGED, f"member {entry.name!r} is not where the directory says")
        at = start + entry.offset + _LOCAL.size + int(name_size) + int(extra_size)
        if at + entry.size > start + offset:
            raise FileFault(CUT_OFF, f"member {entry.name!r} of {entry.size:,} bytes does not fit before the directory")
        members[entry.name] = ZipMember(entry.name, at, entry.size, entry.crc)
    ordered = sorted(members.values(), key=lambda member: (member.offset, member.size))
    for one, following in pairwise(ordered):
        if one.offset + one.size > following.offset:
            raise FileFault(DAMAGED, f"members {one.name!r} and {following.name!r} overlap")
    return members


def _end(source: OpenFile, start: int, length: int) -> tuple[int, int, int]:
    """Return the number of members, and size and offset of the directory."""
    tail_size = min(length, _END.size + _FULL16 + _LOCATOR.size)
    tail_at = start + length - tail_size
    tail = source.read(tail_at, tail_size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise FileFault(CUT_OFF, "ends in the middle: the directory at its end is missing")
    _, _, _, _, count, size, offset, _ = _END.unpack_from(tail, at)
    if at >= _LOCATOR.size and tail[at - _LOCATOR.size : at].startswith(b"PK\x06\x07"):
        _, _, place, _ = _LOCATOR.unpack_from(tail, at - _LOCATOR.size)
        if place > length - _END64.size:
            raise FileFault(DAMAGED, "points to an end record outside of itself")
        signature, *_, count, size, offset = _END64.unpack(source.read(start + place, _END64.size))
        if signature != b"PK\x06\x06":
            raise FileFault(DAMAGED, "has a broken end record")
    return count, size, offset


def _entries(data: bytes, count: int) -> Iterator[ZipMember]:
    """Yield the members listed in the directory, each with the offset of its local header."""
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise FileFault(DAMAGED, f"has a directory with fewer than {count:,} members")
        signature, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment_size, *_, offset = (
            _ENTRY.unpack_from(data, at)
        )
        if signature != b"PK\x01\x02":
            raise FileFault(DAMAGED, "has a broken directory")
        at += _ENTRY.size
        name = data[at : at + name_size].decode("utf-8", errors="backslashreplace")
        extra = data[at + name_size : at + name_size + extra_size]
        at += name_size + extra_size + comment_size
        if method or flags & 1:
            raise FileFault(COMPRESSED, f"member {name!r} is {'encrypted' if flags & 1 else 'compressed'}; it is not unpacked")
        size, packed, offset = _wide(extra, size, packed, offset)
        if packed != size:
            raise FileFault(DAMAGED, f"member {name!r} has two sizes, {size:,} and {packed:,}")
        yield ZipMember(name, offset, size, crc)


def _wide(extra: bytes, *values: int) -> Iterator[int]:
    """Yield 32-bit fields; a field with the maximum value is replaced by the 64-bit one of the extra field."""
    at, wide = 0, b""
    while at + 4 <= len(extra):
        tag, size = struct.unpack_from("<2H", extra, at)
        if tag == 1:
            wide = extra[at + 4 : at + 4 + size]
        at += 4 + size
    for value in values:
        if value == _FULL32 and len(wide) >= 8:
            yield int.from_bytes(wide[:8], "little")
            wide = wide[8:]
        else:
            yield value
