"""The content of a checkpoint file: tensors, their dtypes, the positions of their bytes, and the plain records of a pickle."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

MAX_PLAIN_ELEMENTS = 64  # elements of a list up to which plain numbers are yielded too


class ElementType(Struct, frozen=True):
    """A dtype.

    Attributes:
        size: Bytes of one element.
        word: Bytes of the words that are tested: a complex number is two words.
        mask: Mask of the tested bits; 0: every element is finite.
        pattern: Value of these bits in NaN and infinity.
    """

    size: int
    word: int = 1
    mask: int = 0
    pattern: int = 0


def _float(size: int, mask: int, *, word: int | None = None) -> ElementType:
    return ElementType(size, word or size, mask, mask)


# IEEE 754: all bits of the exponent are set in an infinity and in NaN. The formats of 8 bits: OCP 8-bit Floating Point
# Specification, revision 1.0 (E4M3 has no infinity, its NaN is S.1111.111); those that end in FNUZ have one NaN, 0x80.
ELEMENTS: dict[str, ElementType] = {
    "float64": _float(8, 0x7FF0_0000_0000_0000),
    "float32": _float(4, 0x7F80_0000),
    "float16": _float(2, 0x7C00),
    "bfloat16": _float(2, 0x7F80),
    "float8_e5m2": _float(1, 0x7C),
    "float8_e4m3fn": _float(1, 0x7F),
    "float8_e8m0fnu": _float(1, 0xFF),
    "float8_e4m3fnuz": ElementType(1, 1, 0xFF, 0x80),
    "float8_e5m2fnuz": ElementType(1, 1, 0xFF, 0x80),
    "complex64": _float(8, 0x7F80_0000, word=4),
    "complex128": _float(16, 0x7FF0_0000_0000_0000, word=8),
    "complex32": _float(4, 0x7C00, word=2),
} | {
    name: ElementType(size)
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


class ByteRange(Struct, frozen=True, kw_only=True):
    """A range of bytes of one dtype.

    Attributes:
        offset: Offset in the file.
        size: Bytes.
        dtype: Name of the dtype, a key of `ELEMENTS`.
        crc: CRC-32 of the bytes; None: not known.
        big_endian: Whether the byte order is big-endian.
    """

    offset: int
    size: int
    dtype: str
    crc: int | None = None
    big_endian: bool = False


class StoredTensor(Struct, frozen=True, kw_only=True):
    """One tensor.

    Attributes:
        keys: Path of keys to the tensor.
        shape: Shape of the tensor.
        dtype: Name of the dtype.
        at: Index of the range that contains it.
        first: Offset of its first byte in that range.
        size: Bytes from its first to its last element.
        needs: Bytes of its elements.
    """

    keys: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    at: int
    first: int
    size: int
    needs: int

    @property
    def name(self) -> str:
        """Return the joined keys, as in a state dict."""
        return ".".join(self.keys)


class Content(Struct, kw_only=True):
    """The content of one file.

    Attributes:
        tensors: Tensors in the order of the file.
        ranges: Byte ranges of the tensors.
        value: The other content, from the root.
        names: Names that unpickling would import.
        called: The names among them that would be called.
        form: Name of the format.
    """

    form: str
    tensors: list[StoredTensor] = field(default_factory=list)
    ranges: list[ByteRange] = field(default_factory=list)
    value: Any = None
    names: tuple[str, ...] = ()
    called: frozenset[str] = frozenset()


# The plain records that represent a pickle, and a traversal of them.
class BadPickle(Exception):  # noqa: N818  never seen by a user: it becomes a finding
    """Bytes that are not a pickle, or a truncated one."""


class ImportedName(Struct, frozen=True, eq=False):
    """A class or function that unpickling would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class PickledCall(Struct, eq=False):
    """An object that unpickling would create: `maker` called with `arguments`, with a state set afterwards.

    Attributes:
        maker: The name that would be called; None: it is no valid name.
        arguments: The arguments.
        state: State that is set on the object afterwards.
        by_class: Whether only an empty object is created, by the `__new__` of its class.
        items: Pairs and elements that are added afterwards.
    """

    maker: Any
    arguments: Any
    state: Any = None
    by_class: bool = False
    items: list[tuple[Any, Any]] | None = None

    @property
    def made_by(self) -> str:
        """The full name of the maker; empty if it is no valid name."""
        return str(self.maker) if isinstance(self.maker, ImportedName) else ""


class PersistentId(Struct, frozen=True, eq=False):
    """A persistent id: a reference to data outside the pickle, such as the bytes of a tensor."""

    identity: Any


class DictPairs(Struct, eq=False):
    """A dictionary as pairs, so that a hostile key is never hashed."""

    items: list[tuple[Any, Any]]

    def get(self, key: str) -> Any:
        """Return the last value of a string key; None if there is none."""
        return next((value for name, value in reversed(self.items) if isinstance(name, str) and name == key), None)

    def names(self) -> list[str]:
        """Return the keys that are strings."""
        return [key for key, _ in self.items if isinstance(key, str)]


class PickleFacts(Struct, frozen=True):
    """The content of a pickle.

    Attributes:
        value: The object, as plain records.
        names: Full names that would be imported, each once.
        called: Names among them that would be called, not only used to create an empty object.
    """

    value: Any
    names: tuple[str, ...]
    called: frozenset[str]


def parts(value: Any, *, max_depth: int = 64) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every part of a pickle's content with its path, each container once, none deeper than `max_depth`.

    A path consists of keys and indices. The state of a call, and a call among its arguments, have the path of the call.
    """
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        keys, part = waiting.pop()
        if isinstance(part, (list, tuple, DictPairs, PickledCall)):
            if id(part) in seen or len(keys) > max_depth:
                continue
            seen.add(id(part))
        yield keys, part
        waiting += reversed(list(_below(keys, part)))


def _below(keys: tuple[str, ...], part: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(part, DictPairs):
        yield from (((*keys, _word(key)), value) for key, value in part.items)
    elif isinstance(part, (list, tuple)):
        few = len(part) <= MAX_PLAIN_ELEMENTS
        yield from (((*keys, str(index)), value) for index, value in enumerate(part) if few or _holds_more(value))
    elif isinstance(part, PickledCall):
        arguments = part.arguments if isinstance(part.arguments, tuple) else (part.arguments,)
        yield from (
            (keys if isinstance(argument, PickledCall) else (*keys, str(index)), argument)
            for index, argument in enumerate(arguments)
        )
        if part.state is not None:
            yield keys, part.state
        for key, value in part.items or ():
            yield (*keys, _word(key)), value


def _holds_more(value: Any) -> bool:
    """Tell whether a part has parts of its own; single numbers in long lists are not yielded."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0
    return len(value.items) > 0 if isinstance(value, DictPairs) else isinstance(value, (PickledCall, PersistentId))


def _word(key: Any) -> str:
    """Return a key as a component of a path; "?" if it is neither a string nor an integer of 64 bits."""
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, int) and -(2**63) <= key < 2**63 else "?"
