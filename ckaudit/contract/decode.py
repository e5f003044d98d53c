"""From bytes to a typed document, in one pass where the file is as it should be.

The decoder checks types and lengths while it parses. Two kinds of illegal text are read all the same, and said: a byte
order mark, and the bare NaN and Infinity that Python's json and C's printf write.
"""

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

_BARE = rb"[-+]?(?:nan(?:\([^)]*\))?|inf(?:inity)?)"
_LIKELY = re.compile(rb"(?<=[:\[,\s])" + _BARE + rb"(?=[\s,\]}])", re.IGNORECASE)
_EXACT = re.compile(rb'"(?:[^"\\]|\\.)*"|' + _LIKELY.pattern, re.IGNORECASE | re.DOTALL)
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """A document, and what had to be forgiven to read it."""

    document: T
    bare_words: int = 0
    byte_order_mark: bool = False


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> Decoded[T]:
    """Decode `data`, forgiving what can be read without doubt.

    Raises:
        msgspec.ValidationError: The text is JSON but not what the decoder's type asks for.
        msgspec.DecodeError: The text is not JSON.
        UnicodeDecodeError: The text is not UTF-8.
        RecursionError: Objects are nested too deep.
    """
    try:
        return Decoded(decoder.decode(data))
    except msgspec.ValidationError:
        if data.startswith(_BOM):
            return _forgive(data, decoder)
        raise
    except msgspec.DecodeError:
        return _forgive(data, decoder)


def _forgive(data: bytes, decoder: msgspec.json.Decoder[T]) -> Decoded[T]:
    bom = data.startswith(_BOM)
    body = data[3:] if bom else data
    quoted, words = _LIKELY.subn(_quote, body)
    try:
        return Decoded(decoder.decode(quoted), words, bom)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # A word inside a string was quoted too, which always breaks the text: tell strings from words, slowly.
        quoted, words = quote_bare_words(body)
        return Decoded(decoder.decode(quoted), words, bom)


def quote_bare_words(data: bytes) -> tuple[bytes, int]:
    """Return `data` with every bare NaN and Infinity outside strings in quotes, and their number.

    >>> quote_bare_words(b'{"a: nan ,": -inf, "b": [NaN]}')
    (b'{"a: nan ,": "-Infinity", "b": ["NaN"]}', 2)
    """
    words = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal words
        if match[0].startswith(b'"'):
            return match[0]
        words += 1
        return _quote(match)

    return _EXACT.sub(replace, data), words


def _quote(match: re.Match[bytes]) -> bytes:
    word = match[0].lower()
    if b"nan" in word:
        return b'"NaN"'
    return b'"-Infinity"' if word.startswith(b"-") else b'"Infinity"'
