"""Pointers and lines of values in JSON text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.contract import violations
from ckaudit.contract.io.json_locations import escape, lines_of, pointer_of, walk, with_lines

DOCUMENTS = st.recursive(
    st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=15,
)


def pointers(value, path=""):
    """Name every value by RFC 6901, the recursive way."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from pointers(part, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")


def leaves(value):
    """Yield every value that holds no other, in order."""
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


@given(DOCUMENTS, st.sampled_from([None, 2]))
def test_every_value_is_found_by_its_pointer_in_order(document, indent):
    assert [spot.pointer for spot in walk(json.dumps(document, indent=indent))] == list(pointers(document))


@given(DOCUMENTS)
def test_a_spot_holds_the_text_of_its_value(document):
    tokens = [json.loads(spot.token) for spot in walk(json.dumps(document)) if spot.token not in ("{", "[")]
    assert tokens == list(leaves(document))


def test_a_key_that_stands_twice_is_marked_the_second_time():
    spots = list(walk('{"a": 1, "b": {"a": 2}, "a": [{"c": 1, "c": 2}]}'))
    assert [spot.pointer for spot in spots if spot.repeated] == ["/a", "/a/0/c"]


def test_lines_count_from_one():
    text = '{\n "a": [\n  1,\n  2\n ],\n "b/c": 3\n}'
    assert lines_of(text, {"", "/a", "/a/1", "/b~1c", "/nowhere"}) == {"": 1, "/a": 2, "/a/1": 4, "/b~1c": 6}


def test_findings_get_the_line_of_their_pointer():
    found = [violations.EMPTY.at("x", "m", pointer="/a/1"), violations.EMPTY.at("x", "m")]
    assert [each.line for each in with_lines(found, b'{\n"a": [0,\n1]}')] == [3, None]
    assert [each.line for each in with_lines(found, b'{"a": [0,1]}\n')] == [1, 1]


@pytest.mark.parametrize("key", ["", "a/b", "a~b", "~1", "/~"])
def test_an_escaped_key_is_one_token(key):
    assert pointer_of(iter([key])) == "/" + escape(key)
    assert escape(key).count("/") == 0


def test_a_deep_text_needs_no_recursion():
    assert sum(1 for _ in walk("[" * 20_000 + "]" * 20_000)) == 1001
