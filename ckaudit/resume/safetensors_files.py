"""Safetensors files: eight bytes with the length of the header, the header as JSON, and the bytes of the tensors.

A header is read as the format's own library reads it, including details that JSON leaves open: a file that does not load there
counts as damaged here.
"""

import json
from math import prod
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from ckaudit.resume.catalogue import CUT_OFF, DAMAGED
from ckaudit.resume.content import ELEMENTS, SAFETENSORS, ByteRange, Content, StoredTensor
from ckaudit.resume.open_file import FileFault, OpenFile, Unjudged

MAX_RANK = 64  # NumPy's own limit
MAX_HEADER = 100_000_000  # the limit of the format itself
MAX_HEADER_READ = 32 * 2**20  # the header of 200,000 tensors; a hostile header takes thirty times its size in memory
METADATA = "__metadata__"

Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class HeaderEntry(Struct, frozen=True):
    """How a header describes a tensor."""

    dtype: str | dict[str, None]
    shape: list[Size]
    data_offsets: tuple[Size, Size]

    @property
    def element(self) -> str:
        """Name of the dtype; the library also accepts an object with this single key."""
        return self.dtype if isinstance(self.dtype, str) else "".join(self.dtype)


def read_safetensors(source: OpenFile) -> Content:
    """Return the content of a safetensors file.

    Raises:
        FileFault: If it is damaged.
        Unjudged: If a dtype is not known.
    """
    length = int.from_bytes(source.read(0, 8), "little")
    if length > MAX_HEADER:
        raise FileFault(DAMAGED, f"says that its header has {length:,} bytes; the format allows {MAX_HEADER:,}")
    if length > MAX_HEADER_READ and 8 + length <= source.size:
        raise Unjudged(f"has a header of {length:,} bytes; the limit is {MAX_HEADER_READ:,}")
    start = 8 + length
    content = Content(form="safetensors")
    end = 0
    for name, entry in sorted(_safetensors_header(source, length).items(), key=lambda item: item[1].data_offsets):
        tensor = _safetensors_tensor(name, entry, len(content.ranges))
        first, last = entry.data_offsets
        if first != end:
            raise FileFault(DAMAGED, f"has tensor {name!r} at byte {first:,}, where the one before ends at {end:,}")
        content.tensors.append(tensor)
        content.ranges.append(ByteRange(offset=start + first, size=last - first, dtype=tensor.dtype))
        end = last
    if start + end > source.size:
        raise FileFault(CUT_OFF, f"has {source.size:,} bytes, where its header asks for {start + end:,}")
    if start + end < source.size:
        raise FileFault(DAMAGED, f"has {source.size:,} bytes, {source.size - start - end:,} more than its header names")
    return content


def _safetensors_header(source: OpenFile, length: int) -> dict[str, HeaderEntry]:
    data = source.read(8, length)
    try:
        described = msgspec.json.decode(data, type=dict[str, Raw])
        if METADATA in described:
            msgspec.json.decode(described.pop(METADATA), type=dict[str, str] | None)
            _refuse_doubled_metadata(data)
        return {name: _entry(raw) for name, raw in described.items()}
    except (ValueError, RecursionError) as error:  # errors of msgspec, json and UTF-8
        raise FileFault(DAMAGED, f"has a header that does not describe tensors: {error}") from None


def _entry(raw: Raw) -> HeaderEntry:
    """Return one entry; an array of its three values is valid too.

    Raises:
        ValueError: If the library would reject it.
    """
    text = bytes(raw)
    if text.startswith(b"["):
        return HeaderEntry(*msgspec.json.decode(raw, type=tuple[str | dict[str, None], list[Size], tuple[Size, Size]]))
    entry = msgspec.json.decode(raw, type=HeaderEntry)
    # Exactly three colons rule out duplicate keys. A minus sign before a zero is no valid size.
    if text.count(b":") != 3 or b"-" in text:
        pairs = json.loads(text, object_pairs_hook=list, parse_int=_no_signed_zero)
        names = [name for name, _ in pairs if name in HeaderEntry.__struct_fields__]
        if len(set(names)) < len(names):
            raise ValueError("a field stands twice")
    return entry


def _no_signed_zero(digits: str) -> int:
    if digits == "-0":
        raise ValueError("-0 is no size")
    return int(digits)


def _refuse_doubled_metadata(data: bytes) -> None:
    r"""Raise `ValueError` if the metadata key occurs twice; a name may be written with \u escapes."""
    if data.count(METADATA.encode()) + data.count(b"\\u") < 2:
        return
    pairs: Any = json.loads(data, object_pairs_hook=list)
    if sum(name == METADATA for name, _ in pairs) > 1:
        raise ValueError(f"{METADATA} stands twice")


def _safetensors_tensor(name: str, entry: HeaderEntry, index: int) -> StoredTensor:
    first, last = entry.data_offsets
    dtype = SAFETENSORS.get(entry.element)
    if dtype is None:
        raise Unjudged(f"holds tensors of {entry.element}, whose bits are not known")
    if len(entry.shape) > MAX_RANK:
        raise Unjudged(f"gives tensor {name!r} {len(entry.shape):,} dimensions; the limit is {MAX_RANK}")
    needs = prod(entry.shape) * ELEMENTS[dtype].size
    if needs != last - first:
        raise FileFault(DAMAGED, f"gives tensor {name!r} {last - first:,} bytes, where its shape asks for {needs:,}")
    return StoredTensor(
        keys=tuple(name.split(".")), shape=tuple(entry.shape), dtype=dtype, at=index, first=0, size=needs, needs=needs
    )
