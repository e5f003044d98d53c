"""A document of the contract as bytes: JSON in the order of its fields, packed by the suffix of its file name."""

import gzip
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from ckaudit.contract.schema.numbers import Number, to_word

SUFFIXES = (".json", ".json.gz", ".json.zst")


def encode(document: msgspec.Struct | dict[str, Any], suffix: str = ".json") -> bytes:
    """Return the bytes of a file with this suffix; equal documents give equal bytes.

    Non-finite floats become the words of the contract, and numpy numbers and arrays plain ones.

    Args:
        document: A checkpoint, a manifest, or any other document of the contract, as a struct or as plain objects.
        suffix: How the file is packed, one of `SUFFIXES`.

    Raises:
        ValueError: If the suffix is not one of `SUFFIXES`.
    """
    if suffix not in SUFFIXES:
        raise ValueError(f"suffix {suffix!r} is none of {', '.join(SUFFIXES)}")
    data = msgspec.json.encode(document, enc_hook=_plain)
    if b"null" in data:  # which is also how msgspec writes a float that is not finite
        data = msgspec.json.encode(_with_words(msgspec.to_builtins(document, enc_hook=_plain)))
    return pack(data, suffix)


def significant(values: Iterable[float], digits: int = 4) -> list[Number]:
    """Return the values rounded to significant digits, with words where they are not finite.

    >>> significant([0.123456, -98765.4, float("inf")])
    [0.1235, -98770.0, 'Infinity']
    """
    return [to_word(float(f"{value:.{digits}g}")) for value in values]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a numpy number or array; naming its class would import numpy
        return value.tolist()
    raise NotImplementedError(f"a {type(value).__name__} has no place in a document")


def _with_words(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else to_word(value)
    if isinstance(value, dict):
        return {key: _with_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_words(item) for item in value]
    return value


def pack(data: bytes, suffix: str) -> bytes:
    """Return bytes packed as a file with this suffix is; equal ones give equal ones."""
    if suffix == ".json.gz":
        return gzip.compress(data, mtime=0)
    if suffix == ".json.zst":
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress(data)
    return data
