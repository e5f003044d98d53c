"""Documents decoded and encoded: what is illegal and read all the same, and bytes that say the same."""

import gzip
import json
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.contract.io.codec import decode, encode, quote_bare_words, significant
from ckaudit.contract.schema.checkpoint import BinRange, Checkpoint, Histogram, History, WeightStats

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


def checkpoint(**fields):
    return Checkpoint(schema_version="ck.analysis.v1", step=3, **fields)


def test_what_was_encoded_is_decoded_again():
    document = checkpoint(
        loss=1.5, weights={"w": WeightStats(shape=[2, 3], mean=0.25, histogram=Histogram(BinRange([0, 1], 2), [4, 2]))}
    )
    assert msgspec.json.decode(encode(document), type=Checkpoint) == document


def test_non_finite_floats_become_words_wherever_they_stand():
    history = History(steps=[1, 2], loss=[float("inf"), None], gradient_norms={"w": [float("nan"), 1.0]})
    document = checkpoint(
        loss=float("nan"), scalars={"x": float("-inf")}, weights={"w": WeightStats(mean=float("nan"))}, history=history
    )
    plain = json.loads(encode(document))
    assert plain["loss"] == "NaN"
    assert plain["scalars"] == {"x": "-Infinity"}
    assert plain["weights"]["w"] == {"mean": "NaN"}
    assert plain["history"] == {"steps": [1, 2], "loss": ["Infinity", None], "gradient_norms": {"w": ["NaN", 1.0]}}


def test_numpy_numbers_and_arrays_are_written_plainly():
    document = checkpoint(
        loss=np.float64(0.5), weights={"w": WeightStats(percentiles=np.arange(7) / 2, numel=np.int64(9), mean=np.float32("nan"))}
    )
    plain = json.loads(encode(document))
    assert plain["loss"] == 0.5
    assert plain["weights"]["w"] == {"numel": 9, "mean": "NaN", "percentiles": [0, 0.5, 1, 1.5, 2, 2.5, 3]}


def test_every_suffix_unpacks_to_the_same_json():
    document = checkpoint(loss=2.0)
    plain = encode(document)
    assert gzip.decompress(encode(document, ".json.gz")) == plain
    assert zstandard.ZstdDecompressor().decompress(encode(document, ".json.zst")) == plain


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
def test_equal_documents_give_equal_bytes(suffix):
    assert encode(checkpoint(loss=2.0), suffix) == encode(checkpoint(loss=2.0), suffix)


def test_an_unknown_suffix_is_refused():
    with pytest.raises(ValueError, match="yaml"):
        encode(checkpoint(), ".yaml")


def test_a_value_without_a_place_in_json_is_refused():
    with pytest.raises(NotImplementedError, match="object"):
        encode(checkpoint(scalars={"x": object()}))


def test_significant_keeps_four_digits_and_names_the_rest():
    assert significant([0.00012344999, 9999.5, -0.0, float("nan")]) == [0.0001234, 10000.0, 0.0, "NaN"]
