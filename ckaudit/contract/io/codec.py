"""Decoding and encoding of documents: one pass for files in proper form, and output in the order of fields.

The decoder checks types and lengths while it parses. Two kinds of illegal text are accepted and reported: a byte order mark, and
the bare NaN and Infinity that Python's json and C's printf write.
"""

import math
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ckaudit.contract.schema.numbers import Number, encode_float

T = TypeVar("T")

_WORD = rb"[-+]?(?:[nN][aA][nN](?:\([^)]*\))?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)(?=[\s,\]}])"
_EXACT = rb'"(?:[^"\\]|\\.)*"|(?<=[:\[,\s])' + _WORD  # compiled on demand, because that takes 4 ms
BOM = b"\xef\xbb\xbf"

MAX_DEPTH = 920

SUFFIXES = (".json", ".json.gz", ".json.zst")


class Decoded(Struct, Generic[T], frozen=True):
    """A document, and the faults that were accepted to read it.

    Attributes:
        document: The decoded document.
        text: The text with all accepted faults corrected.
        bare_words: Number of non-finite numbers without quotes.
        byte_order_mark: Whether the text starts with one.
    """

    document: T
    text: bytes
    bare_words: int = 0
    byte_order_mark: bool = False


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> Decoded[T]:
    """Decode `data`, accepting faults that leave no doubt about the content.

    Raises:
        msgspec.ValidationError: The text is JSON but does not match the decoder's type.
        msgspec.DecodeError: The text is not JSON.
        UnicodeDecodeError: The text is not UTF-8.
        RecursionError: Objects are nested too deeply.
    """
    try:
        return Decoded(decoder.decode(data), data)
    except msgspec.ValidationError:
        if data.startswith(BOM):
            return _forgive(data, decoder)
        raise
    except msgspec.DecodeError:
        return _forgive(data, decoder)


def is_deep(document: Any) -> bool:
    """Tell whether lists and objects are nested more than MAX_DEPTH levels deep.

    The parser of Python 3.11 refuses a thousand levels. Later versions continue as long as the machine's stack lasts, but code
    that walks through the document afterwards does not.
    """
    level = [document]
    for _ in range(MAX_DEPTH):
        inner = (value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list))
        level = [value for value in chain.from_iterable(inner) if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def decode_whole(text: bytes, kind: Any) -> Any:
    """Decode a text that writes whole numbers as 3.0, which JSON Schema allows; None if it has other faults."""
    if b"\\ud" in text.lower():  # Python's parser accepts half a surrogate pair, which is not text
        return None
    import json

    try:
        document = json.loads(text.decode(), parse_float=_number, parse_constant=_no_number)
        return msgspec.convert(document, kind)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return None


def whole_or_float(digits: str) -> float:
    """Return a number as JSON Schema reads it, for which 3.0 is a whole number."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def _number(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("no 64-bit float holds it")
    return whole_or_float(digits) if abs(number) < 2**63 else number


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _forgive(data: bytes, decoder: msgspec.json.Decoder[T]) -> Decoded[T]:
    """Decode a text without its byte order mark and with bare words quoted: first the fast way, then the exact one."""
    bom = data.startswith(BOM)
    body = data[3:] if bom else data
    quoted, words = quote_everywhere(body)
    try:
        return Decoded(decoder.decode(quoted), quoted, words, bom)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        quoted, words = quote_bare_words(body)
        return Decoded(decoder.decode(quoted), quoted, words, bom)


def quote_everywhere(data: bytes) -> tuple[bytes, int]:
    """Return `data` with every NaN and Infinity quoted, and the number of bare ones.

    Fast, and wrong only if a word is part of a longer string; that string then ends too early, which every parser refuses.
    """
    data, nans = _quote_word(data, b"NaN")
    data, infinities = _quote_word(data, b"Infinity")
    return data, nans + infinities


def _quote_word(data: bytes, word: bytes) -> tuple[bytes, int]:
    """Quote one word wherever it is bare, including a minus before it.

    >>> _quote_word(b'[NaN,"NaN"]', b"NaN")
    (b'["NaN","NaN"]', 1)
    """
    before, *rest = data.split(word)
    if not rest:
        return data, 0
    parts, bare = [before], 0
    for part in rest:
        if part.startswith(b'"') and parts[-1].endswith((b'"', b'"-')):
            parts += (word, part)
            continue
        bare += 1
        sign = b"-" if parts[-1].endswith(b"-") else b""
        parts[-1] = parts[-1].removesuffix(sign)
        parts += (b'"' + sign + word + b'"', part)
    return b"".join(parts), bare


def quote_bare_words(data: bytes) -> tuple[bytes, int]:
    """Return `data` with every bare NaN and Infinity outside strings in quotes, and their number.

    >>> quote_bare_words(b'{"a: nan ,": -inf, "b": [NaN]}')
    (b'{"a: nan ,": "-Infinity", "b": ["NaN"]}', 2)
    """
    words = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal words
        word = match[0].lower()
        if word.startswith(b'"'):
            return match[0]
        words += 1
        if b"nan" in word:
            return b'"NaN"'
        return b'"-Infinity"' if word.startswith(b"-") else b'"Infinity"'

    return re.sub(_EXACT, replace, data, flags=re.DOTALL), words


def encode(document: msgspec.Struct | dict[str, Any], suffix: str = ".json") -> bytes:
    """Return the bytes of a file with this suffix; equal documents give equal bytes.

    Non-finite floats become the contract's words, and numpy numbers and arrays become plain ones.

    Args:
        document: A checkpoint, a manifest, or any other document of the contract, as a struct or as plain objects.
        suffix: How the file is packed, one of `SUFFIXES`.

    Raises:
        ValueError: If the suffix is not one of `SUFFIXES`.
    """
    if suffix not in SUFFIXES:
        raise ValueError(f"suffix {suffix!r} is none of {', '.join(SUFFIXES)}")
    data = msgspec.json.encode(document, enc_hook=_plain)
    if b"null" in data:  # msgspec also writes non-finite floats as null
        data = msgspec.json.encode(_with_words(msgspec.to_builtins(document, enc_hook=_plain)))
    return pack(data, suffix)


def significant(values: Iterable[float], digits: int = 4) -> list[Number]:
    """Return the values rounded to significant digits, with words for non-finite ones.

    >>> significant([0.123456, -98765.4, float("inf")])
    [0.1235, -98770.0, 'Infinity']
    """
    return [encode_float(float(f"{value:.{digits}g}")) for value in values]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a numpy number or array, detected without importing numpy
        return value.tolist()
    raise NotImplementedError(f"a {type(value).__name__} has no place in a document")


def _with_words(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else encode_float(value)
    if isinstance(value, dict):
        return {key: _with_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_words(item) for item in value]
    return value


def pack(data: bytes, suffix: str) -> bytes:
    """Return bytes compressed according to the suffix; equal input gives equal output."""
    if suffix == ".json.gz":
        import gzip  # only some files are packed so

        return gzip.compress(data, mtime=0)
    if suffix == ".json.zst":
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress(data)
    return data
