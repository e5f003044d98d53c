"""A file of `torch.save`, read without torch and without unpickling: a zip with a pickle and the bytes of each storage."""

from collections.abc import Iterator
from math import prod
from typing import Any

from ckaudit.resume.catalogue import CUT_OFF, DAMAGED
from ckaudit.resume.content import Content, Range, Tensor
from ckaudit.resume.elements import ELEMENTS, STORAGES
from ckaudit.resume.pickled import MAX_BYTES, read_pickle
from ckaudit.resume.records import BadPickle, Call, Name, Stored, parts
from ckaudit.resume.source import Source
from ckaudit.resume.trouble import Trouble, Unjudged
from ckaudit.resume.zipped import MAGIC, Member, read_directory

# What torch wrote before version 1.6: a pickle of this number comes first.
LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
MAX_RANK = 64  # NumPy's own limit
_REBUILT = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}


def read_torch(source: Source, start: int = 0, length: int | None = None) -> Content:
    """Return what a file of torch holds.

    Args:
        source: The file.
        start: Where it begins, for one that stands inside another file.
        length: Its bytes; None: all there are.

    Raises:
        Trouble: Where it is damaged.
        Unjudged: Where it is no zip, or its tensors are of a kind that is not known.
    """
    size = source.size - start if length is None else length
    head = source.read(start, min(size, len(LEGACY)))
    if not head.startswith(MAGIC):
        raise _not_a_zip(head)
    members = read_directory(source, start, size)
    root, pickle = _pickle_of(members)
    if f"{root}constants.pkl" in members:
        raise Unjudged("is a TorchScript archive, a program and no checkpoint")
    try:
        said = read_pickle(source.read(pickle.offset, pickle.size))
    except BadPickle as error:
        raise Trouble(DAMAGED, f"holds a broken pickle: {error}") from None
    content = Content(form="torch", value=said.value, names=said.names, called=said.called)
    byte_order = members.get(f"{root}byteorder")
    big = byte_order is not None and source.read(byte_order.offset, min(byte_order.size, 8)) == b"big"
    _Builder(content, members, root, big_endian=big).build(said.value)
    return content


def _not_a_zip(head: bytes) -> Exception:
    if head.startswith(LEGACY[:11]):
        return Unjudged("is in the format before torch 1.6, which cannot be read without unpickling")
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return Unjudged("is a bare pickle, which cannot be read without unpickling")
    if not head.strip(b"\0"):
        return Trouble(CUT_OFF, "begins with zeros where a torch file should be: its bytes never reached the disk")
    return Trouble(DAMAGED, f"is not a torch file: it begins with {head[:8]!r}")


def _pickle_of(members: dict[str, Member]) -> tuple[str, Member]:
    found = [name for name in members if name.rpartition("/")[2] == "data.pkl" and name.count("/") <= 1]
    if len(found) != 1:
        raise Trouble(DAMAGED, f"holds {len(found)} times data.pkl, where there must be one")
    member = members[found[0]]
    if member.size > MAX_BYTES:
        raise Trouble(DAMAGED, f"holds a pickle of {member.size:,} bytes; the limit is {MAX_BYTES:,}")
    return found[0].removesuffix("data.pkl"), member


class _Builder:
    """Finds the tensors in a pickle, and the bytes of each among the members."""

    def __init__(self, content: Content, members: dict[str, Member], root: str, *, big_endian: bool) -> None:
        self.content, self.members, self.root, self.big = content, members, root, big_endian
        self.at: dict[tuple[str, str], int] = {}

    def build(self, value: Any) -> None:
        for way, part in parts(value):
            if isinstance(part, Call) and part.made_by in _REBUILT:
                self.content.tensors.append(self.tensor(way, part))

    def tensor(self, way: tuple[str, ...], call: Call) -> Tensor:
        given = call.given if isinstance(call.given, tuple) else ()
        if len(given) < 4 or not isinstance(given[0], Stored):
            raise Trouble(DAMAGED, f"makes tensor {'.'.join(way)!r} of what is no storage")
        storage, first, shape, strides = given[0].identity, given[1], _whole(given[2]), _whole(given[3])
        third = call.made_by.endswith("_v3") and len(given) > 6
        dtype = given[6].name if third and isinstance(given[6], Name) else _dtype_of(storage)
        element = ELEMENTS.get(dtype)
        if element is None:
            raise Unjudged(f"holds tensors of {dtype}, whose bits are not known")
        if len(shape) != len(strides) or len(shape) > MAX_RANK or not isinstance(first, int) or first < 0:
            raise Trouble(DAMAGED, f"gives tensor {'.'.join(way)!r} a shape and strides that do not fit")
        span = 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        index = self.range_of(storage, dtype, ".".join(way))
        room = self.content.ranges[index].size
        if (first + span) * element.size > room:
            needed = (first + span) * element.size
            raise Trouble(CUT_OFF, f"stores {room:,} bytes for tensor {'.'.join(way)!r}, which needs {needed:,}")
        return Tensor(
            way=way,
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
            raise Trouble(DAMAGED, f"does not hold the bytes of tensor {name!r}")
        if (key, dtype) not in self.at:
            self.at[key, dtype] = len(self.content.ranges)
            self.content.ranges.append(
                Range(offset=member.offset, size=member.size, dtype=dtype, crc=member.crc or None, big_endian=self.big)
            )
        return self.at[key, dtype]


def _whole(value: Any) -> tuple[int, ...]:
    """Return a shape or strides; an empty tensor of rank 0 where a subclass was saved as a call."""
    given = value.given if isinstance(value, Call) else value
    if isinstance(given, tuple) and len(given) == 1 and isinstance(given[0], tuple):
        given = given[0]  # torch.Size((2, 3))
    if not isinstance(given, (tuple, list)) or not all(type(each) is int and 0 <= each < 2**63 for each in given):
        raise Trouble(DAMAGED, "holds a tensor whose shape is no list of whole numbers")
    return tuple(given)


def _dtype_of(storage: Any) -> str:
    kind = storage[1] if isinstance(storage, tuple) and len(storage) >= 2 else None
    name = kind.name if isinstance(kind, Name) else "no storage"
    return STORAGES.get(name, name)


def storages(content: Content) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield each range of a file, in the order of its bytes, with the tensors in it."""
    by_range: dict[int, list[Tensor]] = {}
    for tensor in content.tensors:
        by_range.setdefault(tensor.at, []).append(tensor)
    for index in sorted(by_range, key=lambda each: content.ranges[each].offset):
        yield index, by_range[index]
