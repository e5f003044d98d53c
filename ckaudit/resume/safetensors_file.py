"""A safetensors file: eight bytes that say how long the header is, the header as JSON, and the bytes of the tensors."""

from math import prod
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ckaudit.resume.catalogue import CUT_OFF, DAMAGED
from ckaudit.resume.content import ELEMENTS, SAFETENSORS, Content, Range, Tensor
from ckaudit.resume.open_file import FileFault, OpenFile, Unjudged

MAX_HEADER = 100_000_000  # the limit of the format itself
MAX_READ = 32 * 2**20  # that of 200,000 tensors; a hostile header takes thirty times its size in memory
MAX_RANK = 64

Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class HeaderEntry(Struct, frozen=True):
    """How a header describes a tensor."""

    dtype: str
    shape: Annotated[list[Size], Meta(max_length=MAX_RANK)]
    data_offsets: tuple[Size, Size]


def read_safetensors(source: OpenFile) -> Content:
    """Return what a safetensors file holds.

    Raises:
        Trouble: Where it is damaged.
        Unjudged: Where an element type is not known.
    """
    length = int.from_bytes(source.read(0, 8), "little")
    if length > MAX_HEADER:
        raise FileFault(DAMAGED, f"says that its header has {length:,} bytes; the format allows {MAX_HEADER:,}")
    if length > MAX_READ and 8 + length <= source.size:
        raise Unjudged(f"has a header of {length:,} bytes; the limit is {MAX_READ:,}")
    start = 8 + length
    content = Content(form="safetensors")
    end = 0
    for name, entry in sorted(_header(source, length).items(), key=lambda item: item[1].data_offsets):
        tensor = _tensor(name, entry, len(content.ranges))
        first, last = entry.data_offsets
        if first != end:
            raise FileFault(DAMAGED, f"has tensor {name!r} at byte {first:,}, where the one before ends at {end:,}")
        content.tensors.append(tensor)
        content.ranges.append(Range(offset=start + first, size=last - first, dtype=tensor.dtype))
        end = last
    if start + end > source.size:
        raise FileFault(CUT_OFF, f"has {source.size:,} bytes, where its header asks for {start + end:,}")
    if start + end < source.size:
        raise FileFault(DAMAGED, f"has {source.size:,} bytes, {source.size - start - end:,} more than its header names")
    return content


def _header(source: OpenFile, length: int) -> dict[str, HeaderEntry]:
    data = source.read(8, length)
    try:
        described = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return {name: msgspec.json.decode(raw, type=HeaderEntry) for name, raw in described.items() if name != "__metadata__"}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFault(DAMAGED, f"has a header that does not describe tensors: {error}") from None


def _tensor(name: str, entry: HeaderEntry, index: int) -> Tensor:
    first, last = entry.data_offsets
    dtype = SAFETENSORS.get(entry.dtype)
    if dtype is None:
        raise Unjudged(f"holds tensors of {entry.dtype}, whose bits are not known")
    needs = prod(entry.shape) * ELEMENTS[dtype].size
    if needs != last - first:
        raise FileFault(DAMAGED, f"gives tensor {name!r} {last - first:,} bytes, where its shape asks for {needs:,}")
    return Tensor(way=tuple(name.split(".")), shape=tuple(entry.shape), dtype=dtype, at=index, first=0, size=needs, needs=needs)
