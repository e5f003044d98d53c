"""Reading samples: every form gives the same records, and what is hostile costs no more than itself."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.material import records as lines_module
from ckaudit.material import records as records_module
from ckaudit.material.columns import Columns
from ckaudit.material.files import MAX_REPORTED, FaultCollector, sample_files
from ckaudit.material.records import Reading, split_lines

COLUMNS = Columns({"text": ("text", "content"), "source": ("source",)})
ROWS = [{"text": "eins\nzwei", "source": "a"}, {"text": "drei ✓", "source": "b"}]


def read(*paths, columns=COLUMNS, split="file"):
    faults, ticks = FaultCollector(), []
    reading = Reading(sample_files(paths), columns, split)
    records = [(each.line, dict(each.values)) for each in reading.records(faults.report, lambda *done: ticks.append(done))]
    assert ticks[-1][0] == ticks[-1][1]
    assert ticks == sorted(ticks)
    return records, [(each.code, each.line) for each in faults.findings()]


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_lines_packed_lines_and_parquet_give_the_same_records(tmp_path):
    data = jsonl(ROWS)
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.ndjson.zst").write_bytes(zstandard.compress(data))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "d.parquet")
    expected = [(1, ROWS[0]), (2, ROWS[1])]
    for name in ("a.jsonl", "b.json.gz", "c.ndjson.zst", "d.parquet"):
        assert read(tmp_path / name) == (expected, []), name
    assert read(tmp_path) == (expected * 4, [])


def test_a_nested_column_is_found_in_both_forms(tmp_path):
    rows = [{"content": "x", "meta": {"source": "web"}}]
    (tmp_path / "a.jsonl").write_bytes(jsonl(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "b.parquet")
    columns = COLUMNS.mapped({"source": "meta.source"})
    for name in ("a.jsonl", "b.parquet"):
        assert read(tmp_path / name, columns=columns)[0] == [(1, {"text": "x", "source": "web"})]
    with pytest.raises(UsageError, match="sorce"):
        COLUMNS.mapped({"sorce": "x"})


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("file", [(1, "one\ntwo\n\n\nthree\n")]),
        ("paragraph", [(1, "one\ntwo"), (5, "three")]),
        ("line", [(1, "one"), (2, "two"), (5, "three")]),
    ],
)
def test_a_document_of_a_text_file_is_what_was_asked_for(tmp_path, split, expected):
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree\n")
    assert read(tmp_path / "a.txt", split=split) == ([(line, {"text": text}) for line, text in expected], [])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_do_not_depend_on_blocks(size):
    data = b"a\r\n\nlonger\nab\nrest"
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    assert list(split_lines(blocks, longest=4)) == [(1, b"a"), (2, b""), (3, None), (4, b"ab"), (5, b"rest")]


def test_a_broken_line_costs_itself(tmp_path):
    good = b'{"text": "x"}\n'
    broken = [b'{"text": \n', b"[1]\n", b'{"text": "\xff"}\n', b"[" * 100_000 + b"\n", b'{"text": "\\ud800"}\n']
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + good + b"".join(line + good for line in broken) + b'{"text": "to')
    records, faults = read(tmp_path / "a.jsonl")
    assert [line for line, _ in records] == [1, 3, 5, 7, 9, 11]
    assert sorted(faults, key=str) == sorted(
        [("DAT001", 2), ("DAT001", 4), ("DAT002", 6), ("DAT001", 8), ("DAT001", 10), ("DAT001", 12)], key=str
    )


def test_a_bare_nan_in_another_column_is_no_fault(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "x", "perplexity": NaN}\n')
    assert read(tmp_path / "a.jsonl") == ([(1, {"text": "x"})], [])


def test_many_faults_are_told_as_a_number(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{\n" * 1000)
    faults = FaultCollector()
    assert list(Reading(sample_files([tmp_path]), COLUMNS).records(faults.report)) == []
    found = faults.findings()
    assert len(found) == MAX_REPORTED + 1
    assert found[-1].points == 1000 - MAX_REPORTED


def test_a_huge_line_and_a_huge_document_cost_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(records_module, "MAX_LINE", 100)
    monkeypatch.setattr(lines_module.split_lines, "__kwdefaults__", {"longest": 100})
    (tmp_path / "a.jsonl").write_bytes(jsonl([{"text": "x" * 200}, {"text": "y"}]))
    assert read(tmp_path / "a.jsonl") == ([(2, {"text": "y"})], [("DAT003", 1)])
    (tmp_path / "b.txt").write_text("x" * 60 + "\n" + "x" * 60 + "\n\nshort\n\n" + "x" * 200 + "\n")
    assert read(tmp_path / "b.txt") == ([], [("DAT003", 1)])
    assert read(tmp_path / "b.txt", split="paragraph") == ([(4, {"text": "short"})], [("DAT003", 1), ("DAT003", 6)])


def test_text_that_is_not_utf8_is_told(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\n\nfine\n")
    assert read(tmp_path / "a.txt") == ([], [("DAT002", 1)])
    assert read(tmp_path / "a.txt", split="paragraph") == ([(3, {"text": "fine"})], [("DAT002", 1)])


def test_bombs_and_strange_files_are_refused_and_the_rest_is_read(tmp_path):
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(bytes(70 * 2**20)))
    (tmp_path / "b.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "c.parquet").write_bytes(b"PAR1no parquet")
    os.mkfifo(tmp_path / "d.jsonl")
    os.mkfifo(tmp_path / "e.parquet")
    (tmp_path / "f.jsonl").symlink_to("/etc/hostname")
    (tmp_path / "g.jsonl").write_bytes(b'{"text": "x"}\n')
    records, faults = read(tmp_path)
    assert records == [(1, {"text": "x"})]
    assert [code for code, _ in faults] == ["SYN008", "SYN012", "DAT005", "SYN001", "DAT005", "SYN013"]


def test_a_text_that_stands_in_every_row_is_unpacked_row_by_row(tmp_path):
    text = "x" * 2**20
    pq.write_table(pa.table({"text": [text] * 200}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 2**21
    count = 0
    for record in Reading(sample_files([tmp_path]), COLUMNS).records(FaultCollector().report):
        count += len(record.values["text"]) == 2**20
        assert pa.total_allocated_bytes() < 50 * 2**20
    assert count == 200


def test_hidden_files_and_foreign_endings_in_a_folder_are_not_read(tmp_path):
    for name in (".hidden.txt", "model.bin", "notes.txt", ".cache/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [file.path.name for file in sample_files([tmp_path])] == ["notes.txt"]
    assert [file.form for file in sample_files([tmp_path / "model.bin"])] == ["text"]
    with pytest.raises(UnreadableError, match="there is no"):
        sample_files([tmp_path / "missing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableError, match="no sample"):
        sample_files([tmp_path / "empty"])
