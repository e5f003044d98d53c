"""What a file of a checkpoint holds: its tensors, where their bytes stand, and everything else as plain records."""

from typing import Any

from msgspec import Struct, field


class Range(Struct, frozen=True, kw_only=True):
    """A stretch of bytes of one element type.

    Attributes:
        offset: Where it begins in the file.
        size: Bytes.
        dtype: Name of the element type, a key of `ELEMENTS`.
        crc: CRC-32 of the bytes; None: not known.
        big_endian: Whether the high byte comes first.
    """

    offset: int
    size: int
    dtype: str
    crc: int | None = None
    big_endian: bool = False


class Tensor(Struct, frozen=True, kw_only=True):
    """One tensor.

    Attributes:
        way: The keys that lead to it.
        shape: Its shape.
        dtype: Name of the element type.
        at: Which range of the file it stands in.
        first: Its first byte in that range.
        size: Bytes from its first to its last element.
        needs: Bytes of its elements.
    """

    way: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    at: int
    first: int
    size: int
    needs: int

    @property
    def name(self) -> str:
        """Return the keys, joined as state dicts join them."""
        return ".".join(self.way)


class Content(Struct, kw_only=True):
    """What one file holds.

    Attributes:
        tensors: In the order of the file.
        ranges: Where their bytes stand.
        value: What else there is, from the root.
        names: What unpickling would import.
        called: The names among them that would be called.
        form: The format, in a word.
    """

    form: str
    tensors: list[Tensor] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    value: Any = None
    names: tuple[str, ...] = ()
    called: frozenset[str] = frozenset()
