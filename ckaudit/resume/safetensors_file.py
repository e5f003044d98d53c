"""A safetensors file: eight bytes that say how long the header is, the header as JSON, and the bytes of the tensors."""

from math import prod
from typing import Any

import msgspec

from ckaudit.resume.catalogue import CUT_OFF, DAMAGED
from ckaudit.resume.content import Content, Range, Tensor
from ckaudit.resume.elements import ELEMENTS, SAFETENSORS
from ckaudit.resume.source import Source
from ckaudit.resume.trouble import Trouble, Unjudged

MAX_HEADER = 100_000_000  # the limit of the format itself


def read_safetensors(source: Source) -> Content:
    """Return what a safetensors file holds.

    Raises:
        Trouble: Where it is damaged.
        Unjudged: Where an element type is not known.
    """
    length = int.from_bytes(source.read(0, 8), "little")
    if length > MAX_HEADER:
        raise Trouble(DAMAGED, f"says that its header has {length:,} bytes; the format allows {MAX_HEADER:,}")
    start = 8 + length
    content = Content(form="safetensors")
    end = 0
    for name, entry in sorted(_header(source, length).items(), key=_begin):
        if name == "__metadata__":
            continue
        tensor, (first, last) = _tensor(name, entry, len(content.ranges))
        if first != end:
            raise Trouble(DAMAGED, f"has tensor {name!r} at byte {first:,}, where the one before ends at {end:,}")
        content.tensors.append(tensor)
        content.ranges.append(Range(offset=start + first, size=last - first, dtype=tensor.dtype))
        end = last
    if start + end > source.size:
        raise Trouble(CUT_OFF, f"has {source.size:,} bytes, where its header asks for {start + end:,}")
    if start + end < source.size:
        raise Trouble(DAMAGED, f"has {source.size:,} bytes, {source.size - start - end:,} more than its header names")
    return content


def _header(source: Source, length: int) -> dict[str, Any]:
    data = source.read(8, length)
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Trouble(DAMAGED, f"has a header that is no JSON object: {error}") from None


def _begin(item: tuple[str, Any]) -> tuple[int, int]:
    offsets = item[1].get("data_offsets") if isinstance(item[1], dict) else None
    good = isinstance(offsets, list) and len(offsets) == 2 and all(type(each) is int for each in offsets)
    return (offsets[0], offsets[1]) if good and isinstance(offsets, list) else (-1, -1)


def _tensor(name: str, entry: Any, index: int) -> tuple[Tensor, tuple[int, int]]:
    first, last = _begin((name, entry))
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if first < 0 or last < first or not isinstance(shape, list) or not all(type(each) is int and each >= 0 for each in shape):
        raise Trouble(DAMAGED, f"describes tensor {name!r} without a shape or a place")
    word = entry.get("dtype")
    dtype = SAFETENSORS.get(word) if isinstance(word, str) else None
    if dtype is None:
        raise Unjudged(f"holds tensors of {word}, whose bits are not known")
    needs = prod(shape) * ELEMENTS[dtype].size
    if needs != last - first:
        raise Trouble(DAMAGED, f"gives tensor {name!r} {last - first:,} bytes, where its shape asks for {needs:,}")
    tensor = Tensor(way=tuple(name.split(".")), shape=tuple(shape), dtype=dtype, at=index, first=0, size=needs, needs=needs)
    return tensor, (first, last)
