"""Two runs as trackers' own libraries wrote them: every value, the resume, and what stays out."""

import math
import random
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source
from ckaudit.importers.formats.wandb import Damage, records
from ckaudit.importers.importer import Source

TRACKERS = Path(__file__).parents[2] / "fixtures" / "trackers"
STORES = {"wandb": TRACKERS / "wandb", "mlflow": TRACKERS / "mlruns", "trackio": TRACKERS / "trackio" / "demo.db.zst"}
NAMES = {"wandb": "Weights & Biases offline run", "mlflow": "MLflow file store", "trackio": "trackio database"}
each_store = pytest.mark.parametrize("store", STORES)


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name, session=0):
    return {row["step"]: row[name] for row in run.rows if name in row and row.get("session", 0) == session}


def expected(steps, start):
    """Return the training loss that was logged, by hand: NaN at 7, infinite at 8."""
    known = {step: 3 * math.exp(-step / 20) + 0.1 * start for step in steps}
    return known | {step: value for step, value in ((7, math.nan), (8, math.inf)) if step in known}


@each_store
def test_both_runs_are_listed_by_their_names(store):
    first, second = import_runs(STORES[store])
    assert (first.name, second.name) == ("first", "second")
    assert first.source == second.source == NAMES[store]


@each_store
def test_every_value_is_imported_and_nothing_else(store):
    run = import_source(STORES[store], import_options=ImportOptions(run="second"))
    assert curve(run, "train_loss_raw") == pytest.approx(expected(range(1, 21), 0), nan_ok=True, rel=1e-15)
    assert curve(run, "val_loss") == pytest.approx({step: 2 * math.exp(-step / 20) for step in (10, 20)}, rel=1e-15)
    assert curve(run, "learning_rate") == dict.fromkeys(range(1, 21), 0.1)
    assert set(run.table.names) == {"train_loss_raw", "val_loss", "learning_rate", "time"}
    assert noted(run, "score")


@each_store
def test_a_run_taken_up_again_is_one_run_that_went_back(store):
    run = import_source(STORES[store], import_options=ImportOptions(run="first"))
    assert curve(run, "train_loss_raw") == pytest.approx(expected(range(1, 31), 0), nan_ok=True, rel=1e-15)
    assert curve(run, "train_loss_raw", 1) == pytest.approx(expected(range(25, 41), 1), rel=1e-15)
    assert noted(run, "first from 30 to 25")


@each_store
def test_times_are_unix_seconds_that_rise(store):
    times = list(curve(import_source(STORES[store], import_options=ImportOptions(run="second")), "time").values())
    assert len(times) == 20
    assert times == sorted(times)
    assert 1.7e9 < times[0] < 1.9e9


@each_store
def test_the_configuration_is_kept(store):
    run = import_source(STORES[store], import_options=ImportOptions(run="second"))
    nested = {"lr": 0.1, "seed": 7, "model": {"layers": 2}}
    assert run.manifest.config == ({"lr": "0.1", "seed": "7", "model/layers": "2"} if store == "mlflow" else nested)
    assert run.manifest.seed == 7


@pytest.mark.parametrize("store", ["wandb", "trackio"])
def test_histograms_of_layers_become_checkpoints(store):
    documents = import_source(STORES[store], import_options=ImportOptions(run="first")).documents
    assert [each["step"] for each in documents] == [10, 20, 30, 40]
    values = np.linspace(-1, 1, 1001)
    for each in documents:
        (entry,) = each["gradients"].values()
        assert entry["norm"] == pytest.approx(np.linalg.norm(values * each["step"]), rel=0.01)
        assert (entry["min"], entry["max"]) == pytest.approx((-each["step"], each["step"]))


def test_the_store_says_when_the_run_began_and_ended():
    for store in ("wandb", "mlflow"):
        run = import_source(STORES[store], import_options=ImportOptions(run="second"))
        (session,) = run.manifest.sessions
        times = list(curve(run, "time").values())
        assert session.start <= times[0] + 0.001
        assert session.end >= session.start


@each_store
def test_a_series_can_be_named_by_the_user(store):
    run = import_source(STORES[store], import_options=ImportOptions(run="second", columns={"loss": "score"}))
    assert curve(run, "train_loss_raw") == {step: float(step) for step in range(1, 21)}
    with pytest.raises(UsageError, match="scor"):
        import_source(STORES[store], import_options=ImportOptions(run="second", columns={"loss": "scor"}))


def test_the_step_can_be_named_where_a_row_has_many_members():
    for store in ("wandb", "trackio"):
        run = import_source(STORES[store], import_options=ImportOptions(run="second", columns={"step": "score"}))
        assert len(curve(run, "train_loss_raw")) == 20
        with pytest.raises(UsageError, match="not there"):
            import_source(STORES[store], import_options=ImportOptions(run="second", columns={"step": "nothing"}))
    with pytest.raises(UsageError, match="its own step"):
        import_source(STORES["mlflow"], import_options=ImportOptions(run="second", columns={"step": "score"}))


def test_one_run_of_a_store_needs_no_name():
    (folder,) = STORES["mlflow"].iterdir()
    assert len(import_runs(folder)) == 2
    for run in [each for each in folder.iterdir() if each.is_dir()]:
        assert len(import_runs(run)) == 1
    for log in STORES["wandb"].iterdir():
        assert len(import_runs(log)) == 1
        assert len(import_runs(next(log.glob("*.wandb")))) == 1


def copied(store, folder):
    return Path(shutil.copytree(STORES[store], folder / store))


def test_links_out_of_a_store_are_not_followed(tmp_path):
    store = copied("mlflow", tmp_path)
    metrics = next(each for each in store.rglob("metrics") if "first" in (each.parent / "tags" / "mlflow.runName").read_text())
    outside = tmp_path / "outside"
    shutil.move(metrics / "train", outside)
    (metrics / "train").symlink_to(outside)
    (metrics / "eval" / "linked").symlink_to(outside / "loss")
    run = import_source(store, import_options=ImportOptions(run="first"))
    assert set(run.table.names) == {"val_loss", "time"}


def test_a_half_written_line_of_mlflow_is_left_out(tmp_path):
    store = copied("mlflow", tmp_path)
    for file in store.rglob("metrics/train/loss"):
        file.write_bytes(file.read_bytes()[:-4])  # "0.5 20" becomes "0.5"
    run = import_source(store, import_options=ImportOptions(run="second"))
    assert max(curve(run, "train_loss_raw")) == 19
    assert noted(run, "1 metrics end in the middle of a line")


def test_lines_of_mlflow_that_are_none_are_counted(tmp_path):
    store = copied("mlflow", tmp_path)
    for file in store.rglob("metrics/train/loss"):
        file.write_bytes(b"x y z\n5\n7000 1.5\n8000 2.5 3 data abc\n9000 1 -2\n10000 nan 4\n\n")
    run = import_source(store, import_options=ImportOptions(run="second"))
    assert curve(run, "train_loss_raw") == pytest.approx({0: 1.5, 3: 2.5, 4: math.nan}, nan_ok=True)
    assert noted(run, "3 lines of metrics are no time, value and step")


def test_a_deleted_run_is_left_out_and_said_to_be(tmp_path):
    store = copied("mlflow", tmp_path)
    for meta in store.rglob("meta.yaml"):
        text = meta.read_text()
        if "run_name: second" in text:
            meta.write_text(text.replace("lifecycle_stage: active", "lifecycle_stage: deleted").replace("status: 3", "status: 4"))
    (run,) = import_runs(store)
    assert run.name == "first"
    assert noted(run, "1 deleted runs")
    (folder,) = [each.parent for each in store.rglob("meta.yaml") if "deleted" in each.read_text()]
    assert noted(import_source(folder), "MLflow says the run failed")


def test_a_wandb_log_cut_anywhere_keeps_what_is_whole(tmp_path):
    data = next(STORES["wandb"].glob("*second/*.wandb")).read_bytes()
    counts = []
    for end in [*range(0, len(data), 487), len(data)]:
        path = tmp_path / "run.wandb"
        path.write_bytes(data[:end])
        try:
            run = import_source(path)
        except UnreadableError:
            counts.append(0)
            continue
        counts.append(len(run.rows))
        assert curve(run, "train_loss_raw") == pytest.approx(expected(range(1, len(run.rows) + 1), 0), nan_ok=True)
    assert counts == sorted(counts)
    assert counts[-1] == 20


def test_a_wandb_log_with_a_broken_block_says_so(tmp_path):
    data = bytearray(next(STORES["wandb"].glob("*second/*.wandb")).read_bytes())
    data[-3000] ^= 1
    path = tmp_path / "run.wandb"
    path.write_bytes(bytes(data))
    run = import_source(path)
    assert noted(run, "1 blocks of run.wandb have a wrong checksum")
    assert 0 < len(run.rows) < 20


def test_the_older_history_of_a_wandb_run(tmp_path):
    files = tmp_path / "run-20200101_000000-abc" / "files"
    files.mkdir(parents=True)
    rows = [
        '{"_step": 0, "_timestamp": 1600000000.5, "train/loss": 2.0, "train/global_step": 10}',
        '{"_step": 1, "_timestamp": 1600000001.5, "train/loss": NaN, "train/global_step": 20}',
        '{"_step": 2, "_timestamp": 1600000002.5, "eval/loss": 3.0}',
        '{"_step": 3, "_timesta',
    ]
    (files / "wandb-history.jsonl").write_text("\n".join(rows))
    run = import_source(tmp_path / "run-20200101_000000-abc")
    assert run.source == NAMES["wandb"]
    assert curve(run, "train_loss_raw") == pytest.approx({10: 2.0, 20: math.nan}, nan_ok=True)
    assert curve(run, "val_loss") == {20: 3.0}
    assert noted(run, "steps from train/global_step")
    assert noted(run, "ends in the middle of a row")
    assert run.name == "run-20200101_000000-abc"


def test_a_counter_that_starts_anew_in_each_epoch_is_no_step(tmp_path):
    path = tmp_path / "wandb-history.jsonl"
    path.write_text("".join(f'{{"_step": {n}, "_runtime": {n}, "loss": {n}.5, "iteration": {n % 5}}}\n' for n in range(60)))
    run = import_source(path)
    assert curve(run, "train_loss_raw") == {n: n + 0.5 for n in range(60)}
    assert noted(run, "iteration starts again too often")
    assert noted(run, "count of calls")


def test_a_database_with_its_log_beside_it_is_read_whole_and_left_alone(tmp_path):
    import sqlite3

    path = tmp_path / "demo.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
        )
        rows = [
            (1, "2026-01-01T00:00:00", "a", 0, '{"loss": 2.0}'),
            (2, "2026-01-01T00:00:01+00:00", "a", 1, '{"loss": "NaN"}'),
            (3, None, "a", 2, "{"),
            (4, None, "a", 2, '{"loss": "-Infinity", "acc": true, "word": "x"}'),
            (5, None, "b", 0, '{"loss": 1}'),
        ]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
        assert (tmp_path / "demo.db-wal").stat().st_size
        before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
        run = import_source(path, import_options=ImportOptions(run="a"))
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    database.close()
    assert curve(run, "train_loss_raw") == pytest.approx({0: 2.0, 1: math.nan, 2: -math.inf}, nan_ok=True)
    assert curve(run, "time") == {1: 1767225601.0}
    assert noted(run, "1 rows hold no step or no JSON object")


def test_mlflows_database_holds_nan_and_infinity_under_other_values(tmp_path):
    import sqlite3

    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), start_time BIGINT,
                end_time BIGINT, lifecycle_stage VARCHAR(20), experiment_id INTEGER);
            CREATE TABLE metrics (key VARCHAR(250), value DOUBLE, timestamp BIGINT, run_uuid VARCHAR(32), step BIGINT,
                is_nan BOOLEAN, PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
            CREATE TABLE params (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));
            CREATE TABLE tags (key VARCHAR(250), value VARCHAR(8000), run_uuid VARCHAR(32));
            INSERT INTO runs VALUES ('a1', 'good', 'KILLED', 1700000000000, 1700000009000, 'active', 1),
                ('b2', 'gone', 'FINISHED', 1, 2, 'deleted', 1);
            INSERT INTO params VALUES ('lr', '0.1', 'a1');
            INSERT INTO tags VALUES ('mlflow.source.git.commit', 'abc', 'a1');
        """)
        largest = 1.7976931348623157e308
        points = [(1, 2.0, 0), (2, 0.0, 1), (3, largest, 0), (4, -largest, 0), (2, 1.5, 0), (3, 1.25, 0)]
        rows = [("loss", value, 1700000000000 + n, "a1", step, nan) for n, (step, value, nan) in enumerate(points)]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.close()
    (run,) = import_runs(tmp_path)
    assert repr(run.rows) == repr(import_source(path).rows)
    assert (run.source, run.name, run.manifest.commit) == ("MLflow database", "good", "abc")
    assert curve(run, "train_loss_raw") == pytest.approx({1: 2.0, 2: math.nan, 3: math.inf, 4: -math.inf}, nan_ok=True)
    assert curve(run, "train_loss_raw", 1) == {2: 1.5, 3: 1.25}
    assert noted(run, "MLflow says the run was killed")
    assert noted(run, "1 deleted runs")
    (session,) = run.manifest.sessions
    assert (session.start, session.end) == (1.7e9, 1.7e9 + 9)


def broken(data, source):
    data = bytearray(data)
    for _ in range(source.choice([1, 10, 100])):
        data[source.randrange(len(data))] = source.randrange(256)
    return bytes(data)


def read_or_refused(path):
    try:
        runs = import_runs(path)
    except CkauditError:
        return
    for run in runs:
        assert all(isinstance(row["step"], int) and row["step"] >= 0 for row in run.rows)
        assert all(note.encode() for note in run.notes)


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_raise_nothing_but_our_errors(tmp_path, seed):
    source = random.Random(seed)
    log = tmp_path / "run.wandb"
    log.write_bytes(broken(next(STORES["wandb"].glob("*second/*.wandb")).read_bytes(), source))
    read_or_refused(log)
    database = tmp_path / "demo.db"
    database.write_bytes(broken(Source(STORES["trackio"]).data, source))
    read_or_refused(database)
    store = copied("mlflow", tmp_path)
    for file in [each for each in store.rglob("*") if each.is_file()]:
        file.write_bytes(broken(file.read_bytes(), source))
    read_or_refused(store)


@pytest.mark.parametrize("seed", range(12))
def test_broken_records_with_right_checksums_raise_nothing_but_our_errors(tmp_path, seed):
    source = random.Random(seed)
    log = next(STORES["wandb"].glob("*second/*.wandb")).read_bytes()
    written = log[:7]
    for record in records(log, Damage()):
        piece = broken(record, source) if source.random() < 0.5 else record
        written += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(b"\1")), len(piece), 1) + piece
    path = tmp_path / "run.wandb"
    path.write_bytes(written)
    read_or_refused(path)


def test_a_database_cut_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "demo.db"
    data = Source(STORES["trackio"]).data
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UnreadableError):
        import_runs(path)


def test_a_database_of_something_else_is_no_log(tmp_path):
    import sqlite3

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE metrics (a INTEGER)")
    database.close()
    with pytest.raises(UnreadableError, match="binary"):
        import_source(path)


def test_deep_members_are_not_followed_for_ever(tmp_path):
    path = tmp_path / "wandb-history.jsonl"
    deep, deeper = '{"a":' * 50 + "1" + "}" * 50, "[" * 100_000 + "]" * 100_000
    rows = [
        f'{{"_step": {step}, "_runtime": 1, "loss": 2.0, "x": {member}}}\n' for step, member in enumerate([deep, deeper, "1"])
    ]
    path.write_text("".join(rows))
    run = import_source(path)
    assert curve(run, "train_loss_raw") == {0: 2.0, 2: 2.0}
    assert noted(run, "1 records cannot be read")


def test_a_folder_of_databases_is_read_as_each_of_them(tmp_path):
    alone = import_runs(STORES["trackio"])
    (tmp_path / "other.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    (tmp_path / "demo.db").write_bytes(Source(STORES["trackio"]).data)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "again.db").write_bytes(Source(STORES["trackio"]).data)
    found = import_runs(tmp_path)
    assert [each.name for each in found] == [each.name for each in alone] == ["first", "second"]
    assert [repr(each.rows) for each in found] == [repr(each.rows) for each in alone]
