"""Bare words are read as the words they are, strings stay as they are, and nothing else is forgiven."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.contract.io.codec import decode, quote_bare_words

ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
TEXTS = st.one_of(
    st.sampled_from(["NaN", "-Infinity", '"NaN"', "x NaN,", "\\NaN", ": NaN,", "[Infinity]", "nan", "-inf", "a-Infinity", ""]),
    st.text(max_size=8),
)
DOCUMENTS = st.recursive(
    st.one_of(TEXTS, st.integers(-5, 5), st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.5, None, True])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def words(value: Any) -> Any:
    """Replace the non-finite floats of a parsed document by the contract's words."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [words(item) for item in value]
    return {key: words(item) for key, item in value.items()} if isinstance(value, dict) else value


def count(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(count, value.values() if isinstance(value, dict) else value))
    return words(value) != value if isinstance(value, float) else 0


@given(DOCUMENTS, st.booleans())
def test_whatever_python_writes_is_read_with_words_for_bare_numbers(document, indented):
    text = json.dumps(document, indent=1 if indented else None, ensure_ascii=indented)
    decoded = decode(text.encode(errors="surrogatepass"), ANYTHING) if text.isascii() else decode(text.encode(), ANYTHING)
    assert decoded.document == words(json.loads(text))
    assert decoded.bare_words == count(json.loads(text))


@given(DOCUMENTS)
def test_the_slow_way_finds_the_same_words(document):
    text = json.dumps([document]).encode()
    quoted, found = quote_bare_words(text)
    assert json.loads(quoted) == words(json.loads(text))
    assert found == count(json.loads(text))


@pytest.mark.parametrize(
    ("bare", "word"),
    [("nan", "NaN"), ("-nan", "NaN"), ("nan(0x8)", "NaN"), ("inf", "Infinity"), ("-INF", "-Infinity"), ("+Infinity", "Infinity")],
)
def test_the_words_of_printf_are_read_too(bare, word):
    assert decode(f'{{"nan": [{bare}, 1]}}'.encode(), ANYTHING).document == {"nan": [word, 1]}


def test_a_word_quoted_here_and_bare_there_is_counted_once():
    decoded = decode(b'{"a": "NaN", "b": NaN, "c": ["-Infinity", -Infinity, "Infinity"]}', ANYTHING)
    assert decoded.document == {"a": "NaN", "b": "NaN", "c": ["-Infinity", "-Infinity", "Infinity"]}
    assert decoded.bare_words == 2


def test_a_byte_order_mark_is_read_and_said():
    decoded = decode(b'\xef\xbb\xbf{"a": 1}', ANYTHING)
    assert (decoded.document, decoded.byte_order_mark, decoded.text) == ({"a": 1}, True, b'{"a": 1}')


@pytest.mark.parametrize("text", [b"", b"{", b"{a: 1}", b"nano", b'{"a": NaNa}', b"[1,]", b"\xff\xfe{\x00}\x00"])
def test_anything_else_is_refused(text):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode(text, ANYTHING)
