"""Tables hold what the rows held, and count the keys and colons that the text held."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from ckaudit.contract.check import SECTIONS, check_checkpoint
from ckaudit.contract.io.columns import EMPTY, count_colons, table
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.checkpoint import Checkpoint, WeightStats
from tests.loops import for_each

VALID = sorted((Path(__file__).parents[2] / "fixtures/checkpoints/valid").iterdir())
WEIGHTS = {
    "full": WeightStats(mean=0.5, std=1.0, min="NaN", shape=[2], dtype="float32"),
    "half": WeightStats(mean=1.5, std="Infinity", min=-1.0, hash="md5:00"),
}


def keys(value):
    """Count the object keys of parsed JSON, the plain way."""
    if isinstance(value, dict):
        return len(value) + sum(map(keys, value.values()))
    return sum(map(keys, value)) if isinstance(value, list) else 0


@for_each("path", VALID)
def test_a_table_counts_the_keys_of_its_section(path):
    data = read_bytes(path, path.name)
    checked = check_checkpoint(data, path.name)
    for name, section in checked.tables.items():
        assert section.keys == keys(json.loads(data)[name])


@for_each("path", VALID)
def test_a_table_gives_every_value_back(path):
    document = msgspec.json.decode(read_bytes(path, path.name).replace(b"500.0", b"500").replace(b":2.0", b":2"), type=Checkpoint)
    for name in SECTIONS:
        for row, (tensor, entry) in enumerate((getattr(document, name) or {}).items()):
            made = table(getattr(document, name))
            assert made.names[row] == tensor
            for field in entry.__struct_fields__:
                assert made.columns.get(field, (UNSET,) * (row + 1))[row] == getattr(entry, field)


def test_columns_are_complete_or_plain_or_neither():
    made = table(WEIGHTS)
    assert made.complete == {"mean", "std", "min"}
    assert made.plain == {"mean"}
    assert made.complete_columns("mean", "std") == [(0.5, 1.5), (1.0, "Infinity")]
    assert made.complete_columns("mean", "shape") is None


def test_numbers_have_a_default_where_none_was_recorded():
    made = table(WEIGHTS)
    assert list(made.numbers("mean", 9.0)) == [0.5, 1.5]
    assert list(made.numbers("std", 9.0)) == [1.0, 9.0]
    assert list(made.numbers("m2", 9.0)) == [9.0, 9.0]


def test_rows_leave_out_tensors_with_a_word_or_without_the_field():
    made = table(WEIGHTS)
    assert list(made.rows("mean")) == [("full", 0.5), ("half", 1.5)]
    assert list(made.rows("mean", "std")) == [("full", 0.5, 1.0)]
    assert list(made.rows("mean", "shape")) == [("full", 0.5, [2])]
    assert list(made.rows("mean", "m2")) == []


def test_recorded_values_hold_words():
    made = table(WEIGHTS)
    assert list(made.recorded("std")) == [("full", 1.0), ("half", "Infinity")]
    assert list(made.recorded("shape")) == [("full", [2])]
    assert list(made.recorded("m2")) == []


def test_colons_in_text_are_those_of_names_and_words():
    assert table(WEIGHTS).colons_in_text() == 1
    assert table({"a:b": WeightStats(), "c::": WeightStats(tied_to="a:b")}).colons_in_text() == 4


def test_an_empty_section_has_an_empty_table():
    assert table({}) == EMPTY


@pytest.mark.parametrize("value", [{}, [], "a:b", {"a:b": ["c:", {"d": None}]}, [[1.0, 2], [{"x": {"y": "::"}}]], 5, None])
def test_colons_are_counted_as_json_writes_them(value):
    assert count_colons(value) == json.dumps(value, separators=(",", ":")).count(":")


def test_counting_does_not_recurse():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert count_colons(deep) == 0
