"""The canonical hash: equal content gives equal hashes, and anything that an evaluation could feel gives another."""

import hashlib
import json
import os
import random
import struct

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.contract.io import artifact_hash as module
from ckaudit.contract.io.artifact_hash import artifact_hash, canonical, shortest, text_hash
from ckaudit.errors import UnreadableError

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | SAFE | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=12,
)


def sha(data):
    return hashlib.sha256(data).hexdigest()


@given(JSON)
def test_canonical_json_is_that_of_the_rfc_as_another_library_writes_it(value):
    assert canonical(json.dumps(value)) == rfc8785.dumps(value)


def test_numbers_are_written_as_the_rfc_lists_them():
    """RFC 8785, appendix B: the float64 with these bits is written so."""
    published = {
        0x0000000000000000: "0",
        0x8000000000000000: "0",
        0x0000000000000001: "5e-324",
        0x7FEFFFFFFFFFFFFF: "1.7976931348623157e+308",
        0x4340000000000000: "9007199254740992",
        0x4430000000000000: "295147905179352830000",
        0x44B52D02C7E14AF5: "9.999999999999997e+22",
        0x44B52D02C7E14AF6: "1e+23",
        0x444B1AE4D6E2EF4E: "999999999999999700000",
        0x444B1AE4D6E2EF50: "1e+21",
        0x3EB0C6F7A0B5ED8C: "9.999999999999997e-7",
        0x3EB0C6F7A0B5ED8D: "0.000001",
        0x41B3DE4355555553: "333333333.3333332",
        0xBECBF647612F3696: "-0.0000033333333333333333",
        0x43143FF3C1CB0959: "1424953923781206.2",
    }
    for bits, text in published.items():
        assert shortest(struct.unpack(">d", struct.pack(">Q", bits))[0]) == text


def test_random_bits_read_back_as_themselves():
    random.seed(1)
    for _ in range(2000):
        value = struct.unpack(">d", random.randbytes(8))[0]
        if value - value == 0:
            assert float(shortest(value)) == value


def test_a_whole_number_keeps_all_its_digits():
    assert canonical(b"[12345678901234567890]") == b"[12345678901234567890]"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', "[NaN]", "[1e999]", '["\\ud800"]', "{", ""])
def test_what_has_no_canonical_form_is_refused(text):
    with pytest.raises(ValueError):
        canonical(text)


@pytest.fixture
def write(tmp_path):
    def put(name, data):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return put


def test_a_plain_text_or_binary_file_has_the_hash_that_sha256sum_prints(write):
    for name, data in (("a.txt", b"one\ntwo\n"), ("b.bin", b"\x00\xff\r\n" * 9), ("empty.txt", b"")):
        assert artifact_hash(write(name, data)) == "sha256:" + sha(data)


def test_line_ends_and_byte_order_marks_of_text_do_not_count(write):
    same = {artifact_hash(write("p.txt", data)) for data in (b"a\nb\n", b"a\r\nb\r\n", b"\xef\xbb\xbfa\r\nb\n")}
    assert same == {"sha256:" + sha(b"a\nb\n")}
    assert artifact_hash(write("p.txt", b"a\rb\n")) == "sha256:" + sha(b"a\rb\n")  # a lone CR is content


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_blocks_do_not_show(write, monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK", block)
    assert artifact_hash(write("p.txt", b"\xef\xbb\xbf\xc3\xa4\r\nb\r\r\n\r")) == "sha256:" + sha("ä\nb\r\n\r".encode())
    assert artifact_hash(write("q.jsonl", b'{"b":1, "a":2}\n{"c": 3}')) == "sha256:" + sha(b'{"a":2,"b":1}\n{"c":3}\n')


def test_bytes_that_are_no_text_are_left_alone(write):
    for data in (b"\r\n\x00\r\n", b"\r\n\xff\r\n", b"\r\n\xc3"):
        assert artifact_hash(write("x.dat", data)) == "sha256:" + sha(data)


def test_raw_takes_every_byte(write):
    assert artifact_hash(write("p.txt", b"a\r\n"), raw=True) == "sha256-raw:" + sha(b"a\r\n")
    assert artifact_hash(write("p.json", b'{ "a":1}'), raw=True) == "sha256-raw:" + sha(b'{ "a":1}')


def test_json_counts_by_what_it_says(write):
    same = {artifact_hash(write("t.json", data)) for data in (b'{"a":1,"b":[1.0]}', b'\xef\xbb\xbf{ "b": [1],\r\n "a": 1e0 }\n')}
    assert same == {"sha256:" + sha(b'{"a":1,"b":[1]}')}
    assert artifact_hash(write("t.json", b'{"a":1,"b":[1,2]}')) != artifact_hash(write("u.json", b'{"a":1,"b":[2,1]}'))


def test_json_that_cannot_be_read_is_text(write):
    for data in (b"{", b"[" * 100_000, b'{"a":1,"a":2}'):
        assert artifact_hash(write("t.json", data)) == "sha256:" + sha(data)
        assert artifact_hash(write("t.jsonl", data)) == "sha256:" + sha(data)


def test_a_document_beyond_the_limit_is_text(write, monkeypatch):
    monkeypatch.setattr(module, "MAX_JSON_BYTES", 4)
    assert artifact_hash(write("t.json", b'{ "a":1}')) == "sha256:" + sha(b'{ "a":1}')


def test_a_text_has_the_hash_of_the_file_that_holds_it(write):
    for name, text in (("t.json", '{"b": 1, "a": "é"}'), ("t.txt", "one\r\ntwo")):
        assert text_hash(text) == artifact_hash(write(name, text.encode()))


def test_a_folder_is_its_files_whatever_their_order_dates_and_rights(tmp_path, write):
    write("one/b.txt", b"b\n")
    write("one/sub/a.json", b'{"x": 1}')
    write("two/sub/a.json", b'{"x":1}\n').chmod(0o600)
    write("two/b.txt", b"b\r\n")
    os.utime(tmp_path / "two/b.txt", (1, 1))
    (tmp_path / "two/empty").mkdir()
    for leftover in (".DS_Store", "__pycache__/x.pyc", ".git/HEAD"):
        write(f"two/{leftover}", b"?")
    assert artifact_hash(tmp_path / "one") == artifact_hash(tmp_path / "two")
    parts = b"b.txt\0%s\nsub/a.json\0%s\n" % (sha(b"b\n").encode(), sha(b'{"x":1}').encode())
    assert artifact_hash(tmp_path / "one") == "sha256:" + sha(b"folder\n" + parts)


def test_a_folder_feels_names_and_places(tmp_path, write):
    write("one/a.txt", b"x")
    write("two/b.txt", b"x")
    write("three/sub/a.txt", b"x")
    write("four/a.txt", b"x")
    write("four/.hidden", b"x")
    assert len({artifact_hash(tmp_path / name) for name in ("one", "two", "three", "four")}) == 4


def test_a_name_is_the_same_composed_or_not(tmp_path, write):
    write("one/\u00e9.txt", b"x")
    write("two/e\u0301.txt", b"x")
    assert artifact_hash(tmp_path / "one") == artifact_hash(tmp_path / "two")


def test_links_are_followed_inside_a_folder_and_never_out_of_it(tmp_path, write):
    write("one/a.txt", b"x")
    (tmp_path / "one/b.txt").symlink_to("a.txt")
    write("two/a.txt", b"x")
    write("two/b.txt", b"x")
    assert artifact_hash(tmp_path / "one") == artifact_hash(tmp_path / "two")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert artifact_hash(tmp_path / "link") == artifact_hash(tmp_path / "one")
    (tmp_path / "one/out").symlink_to(write("outside.txt", b"secret"))
    with pytest.raises(UnreadableError, match="leads out"):
        artifact_hash(tmp_path / "one")
    (tmp_path / "two/loop").symlink_to(tmp_path / "two")
    with pytest.raises(UnreadableError, match="link to a folder"):
        artifact_hash(tmp_path / "two")


def test_what_cannot_be_read_is_said(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "loop", "missing"):
        with pytest.raises(UnreadableError, match=name):
            artifact_hash(tmp_path / name)
