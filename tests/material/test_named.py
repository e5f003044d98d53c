"""Columns that the user named: one that no record has is told, with those that are there."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ckaudit.errors import UsageError
from ckaudit.material.columns import Columns
from ckaudit.material.files import FaultCollector, sample_files
from ckaudit.material.records import MappedColumns, Reading

COLUMNS = Columns({"text": ("text",), "source": ("source",)})
ROWS = [{"id": 1, "content": "x", "meta": None}, {"id": 2, "content": None, "meta": {"from": None}}]


@pytest.fixture(params=["a.jsonl", "a.parquet"])
def sample(request, tmp_path):
    path = tmp_path / request.param
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def look(path, chosen):
    reading = Reading(sample_files([path]), COLUMNS.mapped(chosen), named=MappedColumns(chosen))
    count = len(list(reading.records(FaultCollector().report)))
    reading.named.check(reading.files)
    return count


@pytest.mark.parametrize("chosen", [{}, {"text": "content"}, {"text": "content", "source": "meta.from"}])
def test_a_column_that_a_record_has_is_no_error_even_where_it_is_null(sample, chosen):
    assert look(sample, chosen) == 2


def test_a_column_that_no_record_has_is_told_with_the_nearest_or_all(sample):
    with pytest.raises(UsageError, match="--map text=contents: no record has a column 'contents'") as told:
        look(sample, {"text": "contents"})
    assert told.value.hint == "did you mean content?"
    with pytest.raises(UsageError, match=r"--map source=meta\.to: no record") as told:
        look(sample, {"text": "content", "source": "meta.to"})
    with pytest.raises(UsageError, match="no record has") as told:
        look(sample, {"text": "xyz"})
    assert told.value.hint.startswith("the columns are id, content, meta")


def test_text_has_no_columns_and_what_cannot_be_read_is_told_otherwise(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match="text files have no columns"):
        look(tmp_path / "a.txt", {"text": "body"})
    (tmp_path / "b.jsonl").write_text("{broken\n")
    assert look(tmp_path / "b.jsonl", {"text": "body"}) == 0
