"""Which elements are no finite numbers, by their bits: every format that weights are kept in, without converting any."""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Element(Struct, frozen=True):
    """An element type.

    Attributes:
        size: Bytes of one element.
        word: Bytes of the words that are looked at: a complex number is two of them.
        mask: The bits that tell; 0: every element is a number.
        pattern: What these bits are where an element is none.
    """

    size: int
    word: int = 1
    mask: int = 0
    pattern: int = 0


def _float(size: int, mask: int, *, word: int | None = None) -> Element:
    return Element(size, word or size, mask, mask)


# IEEE 754: all bits of the exponent are set in an infinity and in NaN. The formats of 8 bits: OCP 8-bit Floating Point
# Specification, revision 1.0 (E4M3 has no infinity, its NaN is S.1111.111); those that end in FNUZ have one NaN, 0x80.
ELEMENTS: dict[str, Element] = {
    "float64": _float(8, 0x7FF0_0000_0000_0000),
    "float32": _float(4, 0x7F80_0000),
    "float16": _float(2, 0x7C00),
    "bfloat16": _float(2, 0x7F80),
    "float8_e5m2": _float(1, 0x7C),
    "float8_e4m3fn": _float(1, 0x7F),
    "float8_e8m0fnu": _float(1, 0xFF),
    "float8_e4m3fnuz": Element(1, 1, 0xFF, 0x80),
    "float8_e5m2fnuz": Element(1, 1, 0xFF, 0x80),
    "complex64": _float(8, 0x7F80_0000, word=4),
    "complex128": _float(16, 0x7FF0_0000_0000_0000, word=8),
    "complex32": _float(4, 0x7C00, word=2),
} | {
    name: Element(size)
    for name, size in (
        ("int64", 8),
        ("int32", 4),
        ("int16", 2),
        ("int8", 1),
        ("uint64", 8),
        ("uint32", 4),
        ("uint16", 2),
        ("uint8", 1),
        ("bool", 1),
        ("qint32", 4),
        ("qint8", 1),
        ("quint8", 1),
        ("quint4x2", 1),
        ("quint2x4", 1),
        ("float4_e2m1fn_x2", 1),
    )
}

_LETTERS = {"float": "F", "bfloat": "BF", "complex": "C", "int": "I", "uint": "U"}
SAFETENSORS = {
    f"{letter}{bits}": f"{kind}{bits}"
    for kind, letter in _LETTERS.items()
    for bits in (8, 16, 32, 64)
    if f"{kind}{bits}" in ELEMENTS
} | {
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "BOOL": "bool",
}

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
}

SCRATCH = 2**18  # bytes: the words and the answers stay in the cache, which is three times as fast


class Counter:
    """Counts elements that are no finite numbers, block by block, in scratch memory of its own."""

    def __init__(self, element: Element, *, big_endian: bool = False) -> None:
        import numpy as np

        self.element = element
        order = ">" if big_endian else "<"
        self._type = np.dtype(f"{order}u{element.word}")
        self._mask, self._pattern = (np.array(value, self._type)[()] for value in (element.mask, element.pattern))
        self._words = np.empty(SCRATCH // element.word, self._type)
        self._hits = np.empty(SCRATCH // element.word, bool)

    def count(self, block: "memoryview | bytes") -> int:
        """Return how many words of a block, a whole number of elements, are NaN or infinite."""
        import numpy as np

        if not self.element.mask:
            return 0
        words: NDArray[np.uint64] = np.frombuffer(block, self._type)
        found = 0
        for start in range(0, len(words), len(self._words)):
            part = words[start : start + len(self._words)]
            np.bitwise_and(part, self._mask, out=self._words[: len(part)])
            np.equal(self._words[: len(part)], self._pattern, out=self._hits[: len(part)])
            found += int(np.count_nonzero(self._hits[: len(part)]))
        return found
