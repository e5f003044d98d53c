"""One pass over the bytes of a file: non-finite elements, and checksums that do not match."""

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ckaudit.contract.schema.report import Finding
from ckaudit.resume.catalogue import BAD_OPTIMIZER, BAD_WEIGHTS, DAMAGED
from ckaudit.resume.content import ELEMENTS, ByteRange, Content, ElementType, StoredTensor
from ckaudit.resume.open_file import OpenFile
from ckaudit.resume.tensor_files import storages
from ckaudit.wording import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_REPORTED = 5

KINDS = {"weights": BAD_WEIGHTS, "optimizer": BAD_OPTIMIZER}

Tick = Callable[[int], None]

SCRATCH = 2**18  # bytes: words and results stay in the CPU cache, which is three times as fast


class NonfiniteTensor(Struct, frozen=True):
    """A tensor with elements that are NaN or infinite, and their number."""

    tensor: StoredTensor
    role: str
    count: int


def scan(source: OpenFile, content: Content, roles: dict[int, str], tick: Tick) -> list[Finding]:
    """Return findings for the bytes of a file's tensors.

    Args:
        source: The file.
        content: Content of the file.
        roles: The role of each tensor, by index.
        tick: Called with the number of bytes read since the last call.

    Raises:
        FileFault: If the file ends before its tensors.
    """
    role_of = {id(tensor): roles[index] for index, tensor in enumerate(content.tensors)}
    bad: list[NonfiniteTensor] = []
    broken: list[StoredTensor] = []
    for index, tensors in storages(content):
        place = content.ranges[index]
        count, crc = _pass(source, place, tick)
        if crc is not None and crc != place.crc:
            broken.append(tensors[0])
        judged = [tensor for tensor in tensors if role_of[id(tensor)] in KINDS] if count else []
        for tensor in judged:
            words = count if tensor.size == place.size else _count(source, place, tensor)
            if words:
                bad.append(NonfiniteTensor(tensor, role_of[id(tensor)], words))
    return [*_broken(broken, source.shown), *_bad(bad, source.shown)]


def _pass(source: OpenFile, place: ByteRange, tick: Tick) -> tuple[int, int | None]:
    """Return how many words of a range are NaN or infinite, and its CRC-32 if one is expected."""
    element = ELEMENTS[place.dtype]
    counter = Counter(element, big_endian=place.big_endian)
    count, crc = 0, 0 if place.crc is not None else None
    for block in source.blocks(place.offset, place.size):
        count += counter.count(block[: len(block) // element.size * element.size])
        if crc is not None:
            crc = zlib.crc32(block, crc)
        tick(len(block))
    return count, crc


def _count(source: OpenFile, place: ByteRange, tensor: StoredTensor) -> int:
    """Return how many words from the first to the last element of a tensor are NaN or infinite."""
    counter = Counter(ELEMENTS[place.dtype], big_endian=place.big_endian)
    return sum(counter.count(block) for block in source.blocks(place.offset + tensor.first, tensor.size))


def _broken(tensors: list[StoredTensor], file: str) -> list[Finding]:
    if not tensors:
        return []
    more = f" and {plural(len(tensors) - 1, 'other')}" if len(tensors) > 1 else ""
    message = f"the bytes of {tensors[0].name}{more} are not those that were written: CRC-32 differs"
    return [DAMAGED.at(file, message, where=tensors[0].name, also=[tensor.name for tensor in tensors[1:50]])]


def _bad(bad: list[NonfiniteTensor], file: str) -> list[Finding]:
    """Return a finding for each of the first tensors of a role, and one for the rest."""
    findings = []
    for role, kind in KINDS.items():
        of_role = [entry for entry in bad if entry.role == role]
        for entry in of_role[:MAX_REPORTED]:
            total = entry.tensor.needs // ELEMENTS[entry.tensor.dtype].size
            message = f"{min(entry.count, total):,} of {plural(total, 'element')} of {entry.tensor.name} are NaN or infinite"
            findings.append(
                kind.at(file, message, where=entry.tensor.name, value=min(entry.count, total), limit=0, unit="elements")
            )
        if len(of_role) > MAX_REPORTED:
            rest = of_role[MAX_REPORTED:]
            message = f"{plural(len(rest), 'other tensor')} with NaN or infinite elements, {rest[0].tensor.name} first"
            findings.append(kind.at(file, message, where=rest[0].tensor.name, also=[bad.tensor.name for bad in rest[1:50]]))
    return findings


# NaN and infinities are recognised by the bits of an element: no dtype is converted.
class Counter:
    """Counts non-finite elements, block by block, in its own scratch memory."""

    def __init__(self, element: ElementType, *, big_endian: bool = False) -> None:
        import numpy as np

        self.element = element
        order = ">" if big_endian else "<"
        self._type = np.dtype(f"{order}u{element.word}")
        self._mask, self._pattern = (np.array(value, self._type)[()] for value in (element.mask, element.pattern))
        self._words = np.empty(SCRATCH // element.word, self._type)
        self._hits = np.empty(SCRATCH // element.word, bool)

    def count(self, block: "memoryview | bytes") -> int:
        """Return how many words of a block are NaN or infinite; the block must contain whole elements."""
        import numpy as np

        if not self.element.mask:
            return 0
        words: NDArray[np.uint64] = np.frombuffer(block, self._type)
        count = 0
        for start in range(0, len(words), len(self._words)):
            part = words[start : start + len(self._words)]
            np.bitwise_and(part, self._mask, out=self._words[: len(part)])
            np.equal(self._words[: len(part)], self._pattern, out=self._hits[: len(part)])
            count += int(np.count_nonzero(self._hits[: len(part)]))
        return count
