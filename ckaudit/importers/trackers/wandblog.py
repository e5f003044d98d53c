"""The log of W&B's `.wandb` files: blocks of 32 KiB, in them pieces of records, each with its checksum.

The layout is that of LevelDB's log (a piece is whole, first, middle or last), the checksum an ordinary CRC-32 over the kind and
the bytes. Where a checksum is wrong the rest of its block cannot be trusted; the next block begins anew.
"""

import struct
from collections.abc import Iterator
from zlib import crc32

from msgspec import Struct

MARK = b":W&B"
HEADER = 7

_BLOCK = 32768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_PIECE = struct.Struct("<IHB")
_STARTS = {kind: crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}
MAX_RECORD = 64 * 2**20


class Damage(Struct):
    """What of a log cannot be read.

    Attributes:
        torn: It ends in the middle of a record.
        blocks: Blocks of which some cannot be trusted.
    """

    torn: bool = False
    blocks: int = 0


def records(data: bytes, damage: Damage) -> Iterator[bytes]:
    """Yield the whole records of a log, its header left out, and note in `damage` what is none."""
    parts: list[bytes] = []
    size = 0
    for kind, piece in _pieces(data, damage):
        if kind == _WHOLE:
            parts, size = [], 0
            yield piece
            continue
        if kind == _FIRST:
            parts, size = [], 0
        elif not parts:
            continue  # its beginning was in a block that is broken
        size += len(piece)
        if size > MAX_RECORD:
            parts = []
            continue
        parts.append(piece)
        if kind == _LAST:
            yield b"".join(parts)
            parts = []
    damage.torn = damage.torn or bool(parts)


def _pieces(data: bytes, damage: Damage) -> Iterator[tuple[int, bytes]]:
    place, end = HEADER, len(data)
    while place < end:
        left = _BLOCK - place % _BLOCK
        if left < HEADER:
            place += left
            continue
        if place + HEADER > end:
            damage.torn = True
            return
        check, length, kind = _PIECE.unpack_from(data, place)
        if place + HEADER + length > end and HEADER + length <= left:
            damage.torn = True
            return
        piece = data[place + HEADER : place + HEADER + length]
        if HEADER + length > left or kind not in _STARTS or crc32(piece, _STARTS[kind]) != check:
            damage.blocks += 1
            place += left
            continue
        place += HEADER + length
        yield kind, piece
