"""The data set: what is written comes back, by us and by others; several writers, broken files, newer rows."""

import multiprocessing
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.fleet import Curve, FleetFinding, FleetRun
from ckaudit.errors import CkauditError
from ckaudit.fleet.dataset import TABLES, DatasetWriter, read_stored

FINDING = FleetFinding(
    code="LOSS001", name="loss_spike", severity="sev1", message="a jump", where="loss", first_step=5, last_step=9
)


def row(name: str, **parts) -> FleetRun:
    known = {
        "run": name,
        "status": "audited",
        "severity": "sev1",
        "verdict": "ill",
        "judged": "limited",
        "cause": "bad_batch",
        "confidence": 0.75,
        "findings": [FINDING],
        "vital": {"loss_finite": "well", "validation": "not_judged"},
        "state": {"train_loss_raw": "NaN", "val_loss": 1.5},
        "loss": Curve(steps=[1, 2], values=[3.0, "Infinity"]),
        "facts": {"config.lr": "0.1", "git.commit": "abc", "config.naïve key": "\N{SNOWMAN} \x1b[31m"},
        "fingerprint": name,
        "audited": 1_700_000_000.25,
    }
    return FleetRun(**(known | parts))


def write(folder: Path, *batches: list[FleetRun], close: bool = True) -> None:
    writer = DatasetWriter(folder)
    for batch in batches:
        writer.add(batch)
    if close:
        writer.close()


@pytest.mark.parametrize("close", [True, False])
def test_rows_come_back_as_they_were(tmp_path, close):
    rows = [row("runs/a"), row("runs/b", findings=[], loss=None, vital={}, state={}, facts={}), row("c", severity=None)]
    write(tmp_path, rows[:1], rows[1:], close=close)
    assert read_stored(tmp_path).runs == sorted(rows, key=lambda run: run.run)
    assert all(len(list((tmp_path / table).iterdir())) == (1 if close else 2) for table in TABLES)


def test_the_newest_row_of_a_run_counts_whoever_wrote_it_first(tmp_path):
    old, new = row("a", verdict="old"), row("a", verdict="new", audited=1_700_000_009.0)
    write(tmp_path, [new])
    write(tmp_path, [old])
    assert read_stored(tmp_path).runs == [new]


def test_other_programs_read_every_table(tmp_path):
    import duckdb

    write(tmp_path, [row("runs/a"), row("runs/b", audited=1_700_000_001.0)], [row("runs/c")])

    def ask(sql):
        return duckdb.sql(sql.format(f"'{tmp_path}/")).fetchall()

    assert ask("select facts['config.lr'], not_judged, epoch(audited) from {}runs/*.parquet' where run = 'runs/b'") == [
        ("0.1", ["validation"], 1_700_000_001.0)
    ]
    assert ask("select count(*), min(place), max(last_step) from {}findings/*.parquet'") == [(3, "loss", 9)]
    assert ask("select count(*) from {}verdicts/*.parquet' where state = 'not_judged'") == [(3,)]
    assert (
        ask("select isnan(value) from {}metrics/*.parquet' where kind = 'latest' and metric = 'train_loss_raw'") == [(True,)] * 3
    )
    assert ask("select max(value), max(step) from {}metrics/*.parquet' where kind = 'curve'") == [(float("inf"), 2)]


def test_a_broken_file_costs_nothing_but_itself(tmp_path):
    write(tmp_path, [row("a")])
    (tmp_path / "runs" / "part-broken.parquet").write_bytes(b"PAR1 no more")
    (tmp_path / "runs" / "part-empty.parquet").write_bytes(b"")
    (tmp_path / "runs" / "part-folder.parquet").mkdir()
    other = pq.read_table(next((tmp_path / "verdicts").iterdir()))
    pq.write_table(other, tmp_path / "runs" / "part-other.parquet")
    (tmp_path / "runs" / ".part-half.parquet.partial").write_bytes(b"PAR1")
    stored = read_stored(tmp_path)
    assert [run.run for run in stored.runs] == ["a"]
    assert len(stored.problems) == 4
    assert all("cannot be read and is passed over" in problem for problem in stored.problems)


def test_where_no_data_set_is(tmp_path):
    assert read_stored(tmp_path / "nothing").runs == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(CkauditError, match="cannot write to"):
        DatasetWriter(tmp_path / "file")


def test_what_a_killed_writer_left_is_removed_the_day_after(tmp_path):
    write(tmp_path, [row("a")])
    old, new = (tmp_path / "runs" / f".part-{name}.parquet.partial" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"PAR1")
    os.utime(old, (1, 1))
    DatasetWriter(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_full_disk_is_said_and_what_was_written_stays(tmp_path, monkeypatch):
    writer = DatasetWriter(tmp_path)
    writer.add([row("a")])
    writer.add([row("b")])

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(CkauditError, match="No space left on device"):
        writer.add([row("c")])
    writer.close()  # the parts hold the same as what they would be joined to
    assert [run.run for run in read_stored(tmp_path).runs] == ["a", "b"]


def _write_many(folder: Path, writer: int) -> None:
    writing = DatasetWriter(folder)
    for batch in range(10):
        writing.add([row(f"{writer}-{batch}-{number}") for number in range(5)])
        read_stored(folder)  # readers see whole files only, while others write and join theirs
    writing.close()


def test_several_writers_lose_nothing_and_break_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_many, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    stored = read_stored(tmp_path)
    assert len(stored.runs) == 150
    assert stored.problems == []
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_a_row_of_a_later_version_is_read_as_far_as_it_is_known(tmp_path):
    import json

    import msgspec

    write(tmp_path, [row("a")])
    path = next((tmp_path / "runs").iterdir())
    table = pq.read_table(path)
    document = json.loads(table.column("document")[0].as_py()) | {"something_new": [1]}
    table = table.set_column(table.column_names.index("document"), "document", [[json.dumps(document)]])
    pq.write_table(table, path)
    assert read_stored(tmp_path).runs == [row("a")]
    assert msgspec.json.decode(json.dumps(document), type=FleetRun) == replace(row("a"))
