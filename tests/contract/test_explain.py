"""What is said of a refused document: its kind, its place, and what was asked for."""

import pytest

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.explain import describe, explain, shorten

HEAD = b'{"schema_version":"ck.analysis.v1","step":1,'


def violations(data: bytes, version: str = "ck.analysis.v1"):
    return [(finding.code, finding.pointer) for finding in explain(data, "x", version).findings]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (b'"weights":{"a":{"std":-1}}}', ("SCH007", "/weights/a/std")),
        (b'"weights":{"a":{"mean":"nan"}}}', ("SCH006", "/weights/a/mean")),
        (b'"weights":{"a":{"histogram":{"bins":[1,"x"],"counts":[1]}}}}', ("SCH006", "/weights/a/histogram/bins/1")),
        (b'"weights":{"a":{"sampled_grid_32x32":[[0],[null]]}}}', ("SCH004", "/weights/a/sampled_grid_32x32/1/0")),
        (b'"gradients_source":"somewhere"}', ("SCH006", "/gradients_source")),
        (b'"gradients_source":3}', ("SCH004", "/gradients_source")),
        (b'"history":{}}', ("SCH003", "/history")),
        (b'"loss":1e400}', ("SYN011", "/loss")),
    ],
)
def test_a_violation_is_placed_at_the_value(members, expected):
    assert violations(HEAD + members) == [expected]


@pytest.mark.parametrize("cut", [b"tru", b"-", b"12", b'"abc', b"[1,", b'{"a"', b'{"a":', b"1.5e"])
def test_a_document_that_stops_is_truncated(cut):
    assert violations(HEAD + b'"x":' + cut) == [("SYN005", None)]


@pytest.mark.parametrize("text", [b"hello", b"{]", b"[1 2]", b'{"a" 1}', b"01", b"'a'"])
def test_a_document_that_goes_wrong_is_not_json(text):
    assert violations(text) == [("SYN006", None)]


def test_a_cut_inside_a_character_is_a_cut():
    assert violations("é".encode()[:1].join([HEAD + b'"x":"', b""])) == [("SYN005", None)]


def test_lines_start_where_the_document_does():
    (found,) = explain(b'{"step":\n-1}', "x", "ck.scalars.v1", first_line=10).findings
    assert (found.line, found.code) == (11, "SCH007")


def test_every_violation_is_said():
    assert len(violations(HEAD + b'"loss":null,"time":-1,"weights":[],"left_out":[1,2]}')) == 5


def test_a_schema_is_described_in_words():
    assert describe({"type": "array", "minItems": 2}) == "an array of 2 or more items"
    assert describe({"enum": ["a", "b"]}) == '"a" or "b"'
    assert describe({"anyOf": [{"$ref": "#/$defs/PackedGrid"}, {"type": "null"}]}) == "a PackedGrid object or null"


def test_a_long_value_is_cut():
    assert shorten("x" * 100, limit=5) == "xxxx…"
    assert shorten("short") == "short"


def test_every_missing_property_is_named_once():
    found = check_checkpoint(b"{}", "x.json").findings
    assert [(each.code, each.expected) for each in found] == [("SCH001", "schema_version"), ("SCH003", "step")]


def test_a_string_that_is_cut_ends_where_it_says():
    (found,) = check_checkpoint(b'{"schema_version":"ck.an', "x.json").findings
    assert found.message == "ends in the middle: unterminated string starting at column 19"


def test_every_number_that_overflows_is_found_however_it_is_written():
    digits = ("0", "1", "17", "9" * 199, "9" * 210, "1" + "0" * 308, "1" + "0" * 309)
    parts = ("", ".5", "." + "0" * 300 + "1")
    powers = ("", "e0", "E+98", "e99", "e-400", "e+308", "e309", "E0309", "e+00000400", "e400")
    for token in (sign + whole + part + power for sign in ("", "-") for whole in digits for part in parts for power in powers):
        for text in (token, f'{{"a":[1,{token}]}}', f'[ {token} ,"e999"]', f'{{"b"\n:\n{token}\n}}'):
            found = [each.code for each in explain(text.encode(), "x.json", "ck.analysis.v1").findings]
            assert ("SYN011" in found) is (float(token) in (float("inf"), float("-inf"))), text
