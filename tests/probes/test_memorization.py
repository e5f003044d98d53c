"""Memorization: sequences counted by hand, runs by a slow search."""

import hashlib
import json
import random

import pytest

from ckaudit.material.files import sample_files
from ckaudit.material.records import Reading
from ckaudit.probes.memorization import COLUMNS, longest_run, probe_memorization
from ckaudit.run.robust import wilson_interval


def probe(tmp_path, rows, **named):
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = probe_memorization(Reading(sample_files([path]), COLUMNS), "c", **named)
    return found, {each.name: each for each in found.measures}


TRUTH = list(range(100, 160))


def test_fifty_tokens_decide_and_no_more(tmp_path):
    rows = [
        {"continuation": TRUTH, "truth": TRUTH},
        {"continuation": TRUTH[:50] + [0] * 10, "truth": TRUTH},  # differs behind the fiftieth
        {"continuation": [*TRUTH[:49], 0], "truth": TRUTH},
        {"continuation": [0, *TRUTH], "truth": TRUTH},  # one token late
        {"continuation": TRUTH, "truth": TRUTH[:49]},  # too short to tell
    ]
    found, values = probe(tmp_path, rows)
    assert values["memorization_rate"].value == 50
    assert (values["memorization_rate"].low, values["memorization_rate"].high) == tuple(
        100 * end for end in wilson_interval(2, 4)
    )
    assert values["memorization_anywhere"].value == 75
    assert values["memorization_overlap"].value == pytest.approx((1 + 1 + 49 / 50 + 1) / 4)
    assert found.notes == ["left out: 1 sequence with a truth of fewer than 50 tokens, or none"]
    remark = "longest shared run over the length of the first 50 tokens of the truth, mean"
    assert values["memorization_overlap"].detail == remark
    assert probe(tmp_path, rows, tokens=49)[1]["memorization_rate"].value == 80


def test_a_text_must_hold_the_whole_truth(tmp_path):
    rows = [
        {"continuation": "to be or not to be, that is", "truth": "to be  or\nnot to be,"},
        {"continuation": "to be or", "truth": "to be or not"},
        {"continuation": "and to be or not", "truth": "to be or not"},
    ]
    _, values = probe(tmp_path, rows)
    assert (values["memorization_rate"].value, values["memorization_anywhere"].value) == (100 / 3, 200 / 3)
    assert values["memorization_rate"].detail == "verbatim: all words of the truth"
    assert values["memorization_overlap"].value == pytest.approx((1 + 3 / 4 + 1) / 3)


def test_hashes_are_enough_for_the_rate(tmp_path):
    one, other = (hashlib.sha256(text).hexdigest() for text in (b"a", b"b"))
    rows = [{"continuation_hash": one, "truth_hash": one.upper()}, {"continuation_hash": one, "truth_hash": other}]
    _, values = probe(tmp_path, rows)
    assert values["memorization_rate"].value == 50
    assert set(values) == {"memorization_rate"}


def test_the_rate_is_told_by_how_often_a_sequence_is_repeated(tmp_path):
    rows = [
        {"continuation": "a" if is_exact else "b", "truth": "a", "repeats": repeats}
        for repeats, is_exact in [
            (1, False),
            (1, False),
            (2, False),
            (9, True),
            (10, True),
            (99, True),
            (1000, True),
            (70_000, True),
        ]
    ]
    _, values = probe(tmp_path, rows)
    buckets = {name.partition("/")[2]: (each.value, each.points) for name, each in values.items() if "repeats" in name}
    assert buckets == {"1": (0, 2), "2_to_9": (50, 2), "10_to_99": (100, 2), "1000_or_more": (100, 2)}


def test_the_longest_run_is_that_of_a_slow_search():
    chance = random.Random(2)
    for _ in range(200):
        one, other = ([chance.randrange(3) for _ in range(chance.randrange(12))] for _ in range(2))
        slow = max(
            (
                size
                for size in range(len(one) + 1)
                for i in range(len(one) - size + 1)
                for j in range(len(other) - size + 1)
                if one[i : i + size] == other[j : j + size]
            ),
            default=0,
        )
        assert longest_run(tuple(one), tuple(other)) == slow


def test_a_hostile_generation_takes_no_longer_than_any(tmp_path):
    _, values = probe(tmp_path, [{"continuation": "a " * 2_000_000, "truth": "a " * 500_000}])
    assert values["memorization_rate"].value == 100


def test_what_cannot_be_compared_is_told(tmp_path):
    rows = [
        {"truth": "a"},
        {"continuation": "a", "truth": [1] * 60},
        {"continuation": 5, "truth": "a"},
        {"continuation": "a", "truth": "a", "repeats": 0},
    ]
    found, values = probe(tmp_path, rows)
    assert [each.line for each in found.findings] == [1, 2, 3, 4]
    assert values == {}
    assert found.missing[0].name == "memorization_rate"
