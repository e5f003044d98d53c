"""Snappy, as databases pack their blocks: a length, then literals and copies of what was unpacked before."""

_LITERAL, _NEAR = 0, 1
_LONGEST_PLAIN = 60  # longer literals say their length in one to four bytes after the tag


def unpacked(data: bytes, max_bytes: int) -> bytes:
    """Return what a block holds.

    Args:
        data: The packed block.
        max_bytes: The largest block that is unpacked.

    Raises:
        ValueError: Where it is broken, or says that it is larger.
        IndexError: Where it is cut off.

    >>> unpacked(bytes([9, 0b1000, 97, 98, 99, 0b1001, 3]), 9)
    b'abcabcabc'
    """
    size, place = varint(data, 0)
    if size > max_bytes:
        raise ValueError(f"a block of {size:,} bytes")
    out = bytearray()
    while place < len(data) and len(out) <= size:
        tag = data[place]
        place += 1
        if tag & 3 == _LITERAL:
            length = (tag >> 2) + 1
            if length > _LONGEST_PLAIN:
                extra = length - _LONGEST_PLAIN
                length = int.from_bytes(data[place : place + extra], "little") + 1
                place += extra
            out += data[place : place + length]
            place += length
            continue
        place = _copy(out, data, tag, place)
    if len(out) != size:
        raise ValueError("a packed block of another length than it says")
    return bytes(out)


def _copy(out: bytearray, data: bytes, tag: int, place: int) -> int:
    """Append a copy of earlier bytes, which may reach into itself, and return where the next tag stands."""
    if tag & 3 == _NEAR:
        length, width = (tag >> 2 & 7) + 4, 1
        distance = tag >> 5 << 8 | data[place]
    else:
        length, width = (tag >> 2) + 1, 2 if tag & 3 == 2 else 4
        distance = int.from_bytes(data[place : place + width], "little")
    if not 0 < distance <= len(out):
        raise ValueError("a copy of what was not unpacked")
    start = len(out) - distance
    piece = out[start : start + length]
    out += piece if len(piece) == length else (piece * (length // distance + 1))[:length]
    return place + width


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where it ends.

    Raises:
        ValueError: Where it has more than 64 bits.
        IndexError: Where it is cut off.
    """
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # the highest bit says that more follow
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
