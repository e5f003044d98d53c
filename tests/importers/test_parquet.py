"""Parquet files, and those of Neptune's exporter."""

import contextlib
import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source
from ckaudit.importers.formats import parquetfile
from tests.loops import for_each

NAN = float("nan")


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


@pytest.fixture
def written(tmp_path):
    """Write columns as Parquet and import them."""

    def run(columns, **mapped):
        parquet.write_table(pa.table(columns), tmp_path / "log.bin", row_group_size=2)
        return import_source(tmp_path / "log.bin", import_options=ImportOptions(columns=mapped))

    return run


def test_columns_under_common_names_are_recognised(written):
    run = written({"global_step": [1, 2, 3], "train/loss": [3.0, None, NAN], "lr": [0.1, 0.1, None], "word": ["a", "b", "c"]})
    assert run.source == "Parquet"
    losses = curve(run, "train_loss_raw")
    assert list(losses) == [1, 3]
    assert math.isnan(losses[3])
    assert curve(run, "learning_rate") == {1: 0.1, 2: 0.1}
    assert noted(run, "left out, because no common name says what they are: word")


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(25, 2), pa.string(), pa.large_string()]
)
def test_numbers_of_any_kind_and_texts_of_numbers(written, kind):
    cells = pa.array([5, 4, None]).cast(pa.float32() if kind == pa.float16() else kind)
    steps = pa.array(["1000.0", "2000.0", "3000"])
    assert curve(written({"step": steps, "loss": cells.cast(kind)}), "train_loss_raw") == {1000: 5.0, 2000: 4.0}


def test_members_of_members_and_mapped_columns(written):
    members = pa.array([{"ce": 3.0, "deep": {"x": 1}}, {"ce": 2.0, "deep": {"x": 2}}])
    run = written({"it": [1, 2], "out": members}, step="it", loss="out.ce", grad_norm="out.deep.x")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0}
    assert curve(run, "grad_global_norm") == {1: 1.0, 2: 2.0}


def test_times_are_unix_seconds(written):
    time = pa.array(
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 0, 0, 1, 500_000, dt.UTC)], pa.timestamp("us", "UTC")
    )
    assert curve(written({"step": [1, 2], "loss": [1.0, 2.0], "timestamp": time}), "time") == {1: 1704067200.0, 2: 1704067201.5}


def test_a_column_of_runs_splits_the_file(tmp_path):
    path = tmp_path / "sweep.parquet"
    columns = {"run_name": ["a", "b", "a", "b", "a"], "step": [1, 1, 2, 2, 3], "loss": [5.0, 6.0, 4.0, 7.0, 3.0]}
    parquet.write_table(pa.table(columns), path)
    first, second = import_runs(path)
    assert (first.name, curve(first, "train_loss_raw")) == ("a", {1: 5.0, 2: 4.0, 3: 3.0})
    assert (second.name, curve(second, "train_loss_raw")) == ("b", {1: 6.0, 2: 7.0})


def test_a_column_that_numbers_rows_is_none_of_runs(written):
    assert len(written({"run_id": ["a", "b", "c"], "step": [1, 2, 3], "loss": [1.0, 2.0, 3.0]}).rows) == 3


def test_columns_without_a_known_name_are_listed(written):
    with pytest.raises(UnreadableError, match="alpha, beta"):
        written({"alpha": [1], "beta": [2]})
    with pytest.raises(UsageError, match="'alpa'"):
        written({"alpha": [1.0]}, loss="alpa")


@pytest.mark.parametrize("cut", [8, 100, -1, -9, -50])
def test_a_file_cut_off_is_refused(tmp_path, cut):
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({"step": list(range(100)), "loss": [1.5] * 100}), path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UnreadableError, match="cannot be read"):
        import_source(path)


def test_more_than_fits_in_memory_is_refused(written, monkeypatch):
    monkeypatch.setattr(parquetfile, "MAX_CELLS", 3)
    with pytest.raises(UnreadableError, match="more than fit in memory"):
        written({"step": [1, 2], "loss": [1.0, 2.0]})


NEPTUNE = pa.schema(
    [
        ("project_id", pa.string()),
        ("run_id", pa.string()),
        ("attribute_path", pa.string()),
        ("attribute_type", pa.string()),
        ("step", pa.decimal128(18, 6)),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("int_value", pa.int64()),
        ("float_value", pa.float64()),
        ("string_value", pa.string()),
        ("bool_value", pa.bool_()),
        ("datetime_value", pa.timestamp("ms", tz="UTC")),
        ("string_set_value", pa.list_(pa.string())),
        ("file_value", pa.struct([("path", pa.string())])),
    ]
)
NOON = dt.datetime(2025, 1, 1, 12, tzinfo=dt.UTC)


def point(run, path, step, value):
    return {
        "project_id": "w/p",
        "run_id": run,
        "attribute_path": path,
        "attribute_type": "float_series",
        "step": Decimal(str(step)),
        "timestamp": NOON + dt.timedelta(seconds=float(step)),
        "float_value": value,
    }


def fact(run, path, kind, value):
    return {"project_id": "w/p", "run_id": run, "attribute_path": path, "attribute_type": kind, f"{kind}_value": value}


POINTS = [
    fact("RUN-1", "sys/name", "string", "calm"),
    fact("RUN-1", "config/lr", "float", 0.1),
    fact("RUN-1", "config/layers", "int", 4),
    point("RUN-1", "metrics/train/loss", 1, 3.0),
    point("RUN-1", "metrics/train/loss", 2, 2.0),
    point("RUN-1", "metrics/train/loss", 2.5, 9.0),
    point("RUN-1", "metrics/train/loss", 3, None),
    point("RUN-1", "metrics/val/loss", 2, 2.5),
    point("RUN-1", "monitoring/0/gpu", 1, 50.0),
    point("RUN-1", "odd", 1, 5.0),
    point("RUN-2", "train/loss", 1, 7.0),
]


def exported(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows, NEPTUNE), path)
    return path


def test_neptune_each_run_of_an_export_is_a_run(tmp_path):
    first, second = import_runs(exported(tmp_path / "part_0.parquet", POINTS))
    assert first.source == "Neptune exporter Parquet"
    assert (first.name, second.name) == ("RUN-1", "RUN-2")
    assert curve(second, "train_loss_raw") == {1: 7.0}
    losses = curve(first, "train_loss_raw")
    assert (losses[1], losses[2], list(losses)) == (3.0, 2.0, [1, 2, 3])
    assert math.isnan(losses[3])
    assert curve(first, "val_loss") == {2: 2.5}
    assert curve(first, "time")[2] == NOON.timestamp() + 2
    assert first.manifest.name == "calm"
    assert first.manifest.config == {"config/lr": 0.1, "config/layers": 4}
    assert noted(first, "1 points have no whole step")
    assert noted(first, "1 points have a time and no value")
    assert noted(first, "left out, because no common name says what they are: odd")


def test_neptune_the_parts_of_a_run_are_one(tmp_path):
    exported(tmp_path / "project" / "RUN-1_part_0.parquet", [point("RUN-1", "train/loss", step, 9.0 - step) for step in (1, 2)])
    exported(tmp_path / "project" / "RUN-1_part_1.parquet", [point("RUN-1", "train/loss", step, 9.0 - step) for step in (3, 4)])
    for folder in (tmp_path, tmp_path / "project"):
        run = import_source(folder)
        assert curve(run, "train_loss_raw") == {step: 9.0 - step for step in (1, 2, 3, 4)}
        assert run.manifest.name == "RUN-1"


def test_neptune_a_mapped_path_and_none_known(tmp_path):
    path = exported(tmp_path / "part_0.parquet", [point("RUN-1", "a/b", 1, 3.0)])
    with pytest.raises(UnreadableError, match="a/b"):
        import_source(path)
    assert curve(import_source(path, import_options=ImportOptions(columns={"loss": "a/b"})), "train_loss_raw") == {1: 3.0}


def test_neptune_without_a_row_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="holds 0 runs"):
        import_source(exported(tmp_path / "part_0.parquet", []))


@for_each("seed", range(60))
@for_each("neptune", [False, True])
def test_flipped_bytes_and_cut_files(tmp_path, seed, neptune):
    source = random.Random(seed)
    path = tmp_path / "log.parquet"
    if neptune:
        exported(path, POINTS)
    else:
        columns = {"step": list(range(50)), "loss": [1.5] * 50, "run": ["a", "b"] * 25, "deep": [{"x": 1.0}] * 50}
        parquet.write_table(pa.table(columns), path, compression=source.choice(["snappy", "zstd", "none"]))
    data = bytearray(path.read_bytes())
    for _ in range(source.choice([1, 3, 30])):
        data[source.randrange(4, len(data))] = source.randrange(256)
    path.write_bytes(data[: source.choice([len(data), len(data) - source.randrange(len(data) - 4)])])
    with contextlib.suppress(CkauditError):
        for run in import_runs(path):
            assert len(run.table.steps)
