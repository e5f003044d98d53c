"""Reserved passages: which, how they are cut, and that they stay what they were."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.material.files import sample_files
from ckaudit.material.records import Reading
from ckaudit.probes.passages import COLUMNS, encoded, read_passages, reserve

MATERIAL = Path(__file__).parents[2] / "fixtures" / "runs" / "experts_two_ranks" / "material"


def reading(path, rows=None):
    if rows is not None:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Reading(sample_files([path]), COLUMNS)


def texts(count, words=12):
    return [{"text": " ".join(f"w{number}x{place}" for place in range(words))} for number in range(count)]


def slow_hash(prompt, truth):
    """Hash a pair the plain way."""
    text = json.dumps([prompt, truth], separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_the_lowest_hashes_are_taken_whatever_the_order(tmp_path):
    rows = texts(200)
    found = reserve(reading(tmp_path / "a.jsonl", rows), None, count=10).passages
    halves = [(" ".join(words[:6]), " ".join(words[6:])) for words in (row["text"].split() for row in rows)]
    expected = sorted(halves, key=lambda pair: slow_hash(*pair))[:10]
    assert [(each.prompt, each.truth) for each in found] == expected
    assert [each.hash for each in found] == [slow_hash(*pair) for pair in expected]
    assert [each.id for each in found] == [f"train_{number:02d}" for number in range(10)]
    random.Random(0).shuffle(rows)
    again = reserve(reading(tmp_path / "b.jsonl", [*rows, *rows]), None, count=10).passages  # and copies count once
    assert [each.hash for each in again] == [each.hash for each in found]


def test_a_text_keeps_its_blanks_and_a_long_one_its_beginning(tmp_path):
    long = " ".join(f"w{place}" for place in range(300))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": long}) + "\n" + json.dumps({"text": "a  b c\nd\te f\n\ng h i"}) + "\n")
    found = {each.prompt: each.truth for each in reserve(reading(tmp_path / "a.jsonl"), None).passages}
    assert found["a  b c\nd"] == "e f\n\ng h i"
    (other,) = (prompt for prompt in found if prompt.startswith("w0"))
    assert (other.split()[-1], found[other].split()[0], found[other].split()[-1]) == ("w49", "w50", "w99")


def test_token_numbers_are_cut_like_words(tmp_path):
    found = reserve(reading(tmp_path / "a.jsonl", [{"input_ids": list(range(9))}, {"tokens": [1, 2, 3]}]), None).passages
    assert [(each.prompt, each.truth) for each in found] == [([0, 1, 2, 3], [4, 5, 6, 7, 8])]


def test_what_training_holds_is_not_held_out(tmp_path):
    rows = texts(40)
    found = reserve(reading(tmp_path / "a.jsonl", rows[:30]), reading(tmp_path / "b.jsonl", rows[20:]), count=8)
    held = [each for each in found.passages if each.group == "held_out"]
    assert len(held) == 8
    assert found.seen == 10
    inside = {slow_hash(" ".join(row["text"].split()[:6]), " ".join(row["text"].split()[6:])) for row in rows[:30]}
    assert not inside & {each.hash for each in held}


def test_a_document_that_says_nothing_is_told(tmp_path):
    found = reserve(reading(tmp_path / "a.jsonl", [{"text": 5}, {"text": "too short"}, *texts(3)]), None)
    assert len(found.passages) == 3
    assert [each.code for each in found.faults.findings()] == ["DAT004"]


def test_a_real_corpus():
    found = reserve(reading(MATERIAL / "documents.jsonl"), reading(MATERIAL / "held_out.jsonl")).passages
    assert [each.group for each in found].count("train") == [each.group for each in found].count("held_out") == 16
    lines = (MATERIAL / "documents.jsonl").read_text().splitlines()
    for each in found[:16]:
        text = json.loads(lines[int(each.source.rpartition(":")[2]) - 1])["text"]
        assert text.split() == [*each.prompt.split(), *each.truth.split()]


def test_probes_are_read_again_only_as_they_were_reserved(tmp_path):
    found = reserve(reading(tmp_path / "a.jsonl", texts(20)), None).passages
    path = tmp_path / "probes.jsonl"
    path.write_bytes(encoded(found))
    assert read_passages(path) == list(found)
    path.write_text(path.read_text().replace("x0", "y0", 1))
    with pytest.raises(UnreadableError, match="train_00 is not what its hash says"):
        read_passages(path)
    for text in ("", "{}\n", "x\n"):
        path.write_text(text)
        with pytest.raises(UnreadableError):
            read_passages(path)
    with pytest.raises(UnreadableError):
        read_passages(tmp_path / "none")
