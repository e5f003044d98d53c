"""The directory of a zip file, or of one that stands inside a larger file: where each member's bytes begin.

The layout is that of PKWARE's APPNOTE 6.3.10: local headers with the data, a central directory, and its end record.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from ckaudit.resume.catalogue import COMPRESSED, CUT_OFF, DAMAGED
from ckaudit.resume.source import Source
from ckaudit.resume.trouble import Trouble

MAGIC = b"PK\x03\x04"
MAX_DIRECTORY = 64 * 2**20  # 600,000 members of 110 bytes
_END, _LOCATOR, _END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_FULL16, _FULL32 = 0xFFFF, 0xFFFF_FFFF


class Member(Struct, frozen=True):
    """One file in a zip.

    Attributes:
        name: Its name.
        offset: Where its bytes begin in the file around it.
        size: Bytes.
        crc: Their CRC-32; 0: torch was told not to compute any.
    """

    name: str
    offset: int
    size: int
    crc: int


def read_directory(source: Source, start: int, length: int) -> dict[str, Member]:
    """Return the members of the zip in a range of a file, by name.

    Raises:
        Trouble: Where it is cut off, damaged or compressed.
    """
    count, size, offset = _end(source, start, length)
    if size > MAX_DIRECTORY or size > length or offset > length - size:
        raise Trouble(DAMAGED, f"has a directory of {size:,} bytes at {offset:,}, which cannot be")
    members: dict[str, Member] = {}
    for each in _entries(source.read(start + offset, size), count):
        if each.name in members:
            raise Trouble(DAMAGED, f"holds {each.name!r} twice")
        at = start + each.offset + _data_at(source, start, length, each)
        if at + each.size > start + offset:
            raise Trouble(CUT_OFF, f"member {each.name!r} of {each.size:,} bytes does not fit before the directory")
        members[each.name] = Member(each.name, at, each.size, each.crc)
    _refuse_overlaps(members)
    return members


def _end(source: Source, start: int, length: int) -> tuple[int, int, int]:
    """Return the number of members, and size and place of the directory."""
    tail_size = min(length, _END.size + _FULL16 + _LOCATOR.size)
    tail_at = start + length - tail_size
    tail = source.read(tail_at, tail_size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise Trouble(CUT_OFF, "ends in the middle: the directory at its end is missing")
    _, _, _, _, count, size, offset, _ = _END.unpack_from(tail, at)
    if at >= _LOCATOR.size and tail[at - _LOCATOR.size : at].startswith(b"PK\x06\x07"):
        _, _, place, _ = _LOCATOR.unpack_from(tail, at - _LOCATOR.size)
        if place > length - _END64.size:
            raise Trouble(DAMAGED, "points to an end record outside of itself")
        signature, *_, count, size, offset = _END64.unpack(source.read(start + place, _END64.size))
        if signature != b"PK\x06\x06":
            raise Trouble(DAMAGED, "has a broken end record")
    return count, size, offset


def _entries(data: bytes, count: int) -> Iterator[Member]:
    """Yield the members as the directory has them, each with the offset of its local header."""
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise Trouble(DAMAGED, f"has a directory with fewer than {count:,} members")
        signature, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment_size, *_, offset = (
            _ENTRY.unpack_from(data, at)
        )
        if signature != b"PK\x01\x02":
            raise Trouble(DAMAGED, "has a broken directory")
        at += _ENTRY.size
        name = data[at : at + name_size].decode("utf-8", errors="backslashreplace")
        extra = data[at + name_size : at + name_size + extra_size]
        at += name_size + extra_size + comment_size
        if method or flags & 1:
            raise Trouble(COMPRESSED, f"member {name!r} is {'encrypted' if flags & 1 else 'compressed'}; it is not unpacked")
        size, packed, offset = _wide(extra, size, packed, offset)
        if packed != size:
            raise Trouble(DAMAGED, f"member {name!r} has two sizes, {size:,} and {packed:,}")
        yield Member(name, offset, size, crc)


def _wide(extra: bytes, *values: int) -> Iterator[int]:
    """Yield 32-bit fields, each replaced by the 64-bit one of the extra field where it is full."""
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


def _data_at(source: Source, start: int, length: int, member: Member) -> int:
    """Return how far behind its local header the bytes of a member begin."""
    if member.offset > length - _LOCAL.size:
        raise Trouble(CUT_OFF, f"member {member.name!r} begins after the end")
    signature, *_, name_size, extra_size = _LOCAL.unpack(source.read(start + member.offset, _LOCAL.size))
    if signature != MAGIC:
        raise Trouble(DAMAGED, f"member {member.name!r} is not where the directory says")
    return _LOCAL.size + int(name_size) + int(extra_size)


def _refuse_overlaps(members: dict[str, Member]) -> None:
    ordered = sorted(members.values(), key=lambda each: (each.offset, each.size))
    for one, following in pairwise(ordered):
        if one.offset + one.size > following.offset:
            raise Trouble(DAMAGED, f"members {one.name!r} and {following.name!r} overlap")
