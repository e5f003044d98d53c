"""Reading scalars.jsonl: one bad line costs itself, and every other line is read as a plain JSON parser reads it."""

import gzip
import json
import random

import pytest
import zstandard

from ckaudit.contract.io import jsonl
from ckaudit.contract.io.jsonl import parse_lines, read_lines
from ckaudit.validate import validate

GOOD = b'{"step": 1, "train_loss_raw": 2.5}'


def codes(data: bytes) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.line) for finding in parse_lines(data, "scalars.jsonl").findings]


def test_good_lines_are_rows_with_their_numbers():
    lines = parse_lines(b'{"step": 1, "a": 0.5, "b": null}\n\n{"step": 2, "a": "NaN", "hash": "blake2b:0f"}\r\n', "s")
    assert lines.rows == [{"step": 1, "a": 0.5, "b": None}, {"step": 2, "a": "NaN", "hash": "blake2b:0f"}]
    assert lines.numbers == [1, 3]
    assert lines.findings == []
    assert lines.notes == []


@pytest.mark.parametrize(
    "tail", [b"{", b'{"step": 2, "tr', b'{"step": 2, "a": 1', b'{"step": 2, "a": Na', b"\0\0\0\0", b'{"a": "\xc3']
)
def test_a_torn_last_line_is_a_note(tail):
    lines = parse_lines(GOOD + b"\n" + tail, "s")
    assert lines.rows == [{"step": 1, "train_loss_raw": 2.5}]
    assert lines.findings == []
    assert lines.notes == ["s: the last line is cut off; it was left out"]


def test_a_whole_last_line_without_its_newline_is_read():
    lines = parse_lines(GOOD + b'\n{"step": 2}', "s")
    assert (lines.rows[1], lines.numbers, lines.notes) == ({"step": 2}, [1, 2], [])


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"hello", "SYN006"),
        (b'{"step": 2}{"step": 3}', "SYN006"),
        (b'{"step": 2', "SYN005"),
        (b'{"a": "\xff"}', "SYN003"),
        (b'{"step": 2, "a": "\\ud800"}', "SYN003"),
        (b"[2]", "SCH009"),
        (b'{"a": 1}', "SCH003"),
        (b'{"step": -1}', "SCH007"),
        (b'{"step": 1.5}', "SCH004"),
        (b'{"step": true}', "SCH004"),
        (b'{"step": "2"}', "SCH004"),
        (b'{"step": 2, "time": -1}', "SCH007"),
        (b'{"step": 2, "session": 0.5}', "SCH004"),
        (b'{"step": 2, "a": {"b": 1}}', "SCH004"),
        (b'{"step": 2, "a": [1]}', "SCH004"),
        (b'{"step": 2, "a": 1e999}', "SYN011"),
        (b'{"step": 2, "a": ' + b"9" * 400 + b"}", "SYN011"),
        (b'{"step": 2, "a": ' + b"9" * 5000 + b"}", "SYN011"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "SYN007"),
    ],
)
def test_a_broken_line_is_named_and_the_others_are_read(bad, code):
    lines = parse_lines(GOOD + b"\n" + bad + b"\n" + GOOD + b"\n", "s")
    assert lines.numbers == [1, 3]
    assert {(finding.code, finding.line) for finding in lines.findings} == {(code, 2)}


@pytest.mark.parametrize(
    ("odd", "row"),
    [
        (b'{"step": 2.0}', {"step": 2}),
        (b'{"step" : 2, "a" : 1}', {"step": 2, "a": 1}),
        (b'{"step": 2, "a": 12345678901234567890123}', {"step": 2, "a": 12345678901234567890123.0}),
        (b'{"step": 2, "x\\":": 1}', {"step": 2, 'x":': 1}),
    ],
)
def test_what_is_odd_but_allowed_is_read_without_a_word(odd, row):
    lines = parse_lines(GOOD + b"\n" + odd + b"\n", "s")
    assert (lines.rows[1:], lines.findings) == ([row], [])


def test_a_key_twice_is_a_violation_and_the_last_value_counts():
    data = b'{"step": 1, "a": 1, "a": 2, "text": "a: b"}\n'
    assert codes(data) == [("SYN010", 1)]
    assert parse_lines(data, "s").rows[0]["a"] == 2


@pytest.mark.parametrize("word", [b"NaN", b"nan", b"-Infinity", b"inf", b"-nan(ind)"])
def test_bare_words_are_read_and_told_once(word):
    data = GOOD + b"\n" + (b'{"step": 2, "a": ' + word + b', "note": "a: NaN"}\n') * 2
    lines = parse_lines(data, "s")
    assert [(finding.code, finding.line) for finding in lines.findings] == [("SYN009", 2)]
    assert lines.bare == 2
    assert lines.rows[1]["a"] in ("NaN", "Infinity", "-Infinity")
    assert lines.rows[1]["note"] == "a: NaN"


def test_an_unknown_version_is_refused_by_name_and_nothing_after_it_is_read():
    lines = parse_lines(b'{"step": 0}\n{"schema_version": "ck.scalars.v7", "step": 1}\n{"step": 2}\n', "s")
    (finding,) = lines.findings
    assert (finding.code, finding.line, finding.found) == ("SCH002", 2, '"ck.scalars.v7"')
    assert lines.stopped
    assert lines.rows == [{"step": 0}]


def test_a_byte_order_mark_is_a_violation_and_costs_no_line():
    lines = parse_lines(b"\xef\xbb\xbf" + GOOD + b"\n", "s")
    assert [finding.code for finding in lines.findings] == ["SYN004"]
    assert len(lines.rows) == 1


def test_any_mix_of_lines_gives_the_rows_that_a_plain_parser_gives():
    draw = random.Random(7)
    good = [json.dumps({"step": n, "a": draw.random(), "w": draw.choice(["NaN", None, "x: y", 3])}) for n in range(200)]
    bad = ["{", "nonsense", '{"step": "x"}', '{"a": 1}', "[]", '{"step": 1, "a": {}}']
    for _ in range(30):
        chosen = [draw.choice(good if draw.random() < 0.9 else bad) for _ in range(40)]
        lines = parse_lines("".join(each + "\n" for each in chosen).encode(), "s")
        wanted = [(number, json.loads(each)) for number, each in enumerate(chosen, 1) if each not in bad]
        assert list(zip(lines.numbers, lines.rows, strict=True)) == wanted


def test_a_log_is_the_same_read_in_blocks_and_at_once(tmp_path, monkeypatch):
    data = b"".join(b'{"step": %d, "a": %d}\n' % (step, step * 7) for step in range(1, 3000)) + b'{"step": 30'
    whole = parse_lines(data, "s")
    monkeypatch.setattr("ckaudit.contract.io.files.BLOCK_BYTES", 1000)
    for name, packed in (("s.jsonl", data), ("s.jsonl.gz", gzip.compress(data)), ("s.jsonl.zst", zstandard.compress(data))):
        (tmp_path / name).write_bytes(packed)
        blocks = list(read_lines(tmp_path / name, "s"))
        assert len(blocks) > 20
        assert [row for block in blocks for row in block.rows] == whole.rows
        assert [number for block in blocks for number in block.numbers] == whole.numbers
        assert [note for block in blocks for note in block.notes] == whole.notes


def test_lines_before_the_break_of_a_packed_log_are_read(tmp_path):
    data = b"".join(b'{"step": %d, "a": %r}\n' % (step, random.Random(step).random()) for step in range(1, 2000))
    (tmp_path / "s.jsonl.gz").write_bytes(gzip.compress(data)[:-4000])
    blocks = list(read_lines(tmp_path / "s.jsonl.gz", "s"))
    assert [finding.code for block in blocks for finding in block.findings] == ["SYN005"]


def test_endless_faults_are_counted_and_end_the_reading(tmp_path, monkeypatch):
    (tmp_path / "s.jsonl").write_bytes(b"{}\n" * 300 + GOOD + b"\n")
    findings = [finding for block in read_lines(tmp_path / "s.jsonl", "s") for finding in block.findings]
    assert len(findings) == jsonl.MAX_EXPLAINED + 1
    assert findings[-1].message == "280 more lines are faulty"
    monkeypatch.setattr(jsonl, "MAX_FAULTY", 50)
    blocks = list(read_lines(tmp_path / "s.jsonl", "s"))
    assert sum(len(block.rows) for block in blocks) == 0
    assert blocks[-1].findings[0].message == "30 more lines are faulty; the rest was not read"


def test_a_word_where_a_number_belongs_is_a_violation_and_the_words_of_the_contract_are_none(tmp_path):
    values = ["x", "NaN", 2.5, "Infinity", None]
    rows = [{"schema_version": "ck.scalars.v1", "step": step, "train_loss_raw": value} for step, value in enumerate(values)]
    rows[2] |= {"slice_val_loss/a": "high", "batch_hash": "abc"}
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [finding for finding in validate([tmp_path]).findings if finding.code == "RUN026"]
    assert [(finding.line, finding.where) for finding in found] == [(1, "train_loss_raw"), (3, "slice_val_loss/a")]
    assert "is the word 'x'" in found[0].message
