"""What `ckaudit export` writes is read back as it was: every value, every missing cell, every session and word."""

import io
import json
import math
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ckaudit.audit.load_run import scalars_of
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source
from ckaudit.reports.scalars import write, write_folder
from tests.loops import for_each

TABLES = ("parquet", "arrow", "csv")
ODD = [
    0.0,
    -0.0,
    0.1,
    1e-310,
    1.7976931348623157e308,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    1 / 3,
    2.0**53 + 2,
    -1e22,
    123456789.0,
]
NAMES = [
    "train_loss_raw",
    "learning_rate",
    "slice_val_loss/books",
    'microbench_score/a "quoted", name',
    "error_event_rate/two\nlines",
]
WORDS = ["", " ", "nan", "NaN of it", "12", "a,b", 'q"uote', "é\u2028", "null", "line\nend", "-"]

Lines = dict[tuple[int, int], dict[str, float | str]]


def lines(seed: int, *, count: int = 60) -> Lines:
    """Return lines of several sessions that go back, with holes, odd numbers and words."""
    source = random.Random(seed)
    made: Lines = {}
    step = 0
    for session in range(source.choice([1, 1, 3])):
        step = max(0, step - source.randrange(20))
        for _ in range(count):
            step += source.choice([1, 1, 1, 7, 10_000])
            line: dict[str, float | str] = {name: source.choice(ODD) for name in NAMES if source.random() < 0.6}
            if source.random() < 0.7:
                line["time"] = 1.7e9 + 1e7 * session + step + source.random()
            if source.random() < 0.3:
                line["batch_hash"] = source.choice(WORDS)
            if source.random() < 0.2:
                line["lr_phase"] = source.choice([2.0, "warm-up"])
            if line:
                made[session, step] = line
    return made


def recorded(folder: Path, made: Lines) -> Path:
    """Write lines as a recorder writes them."""
    folder.mkdir(exist_ok=True)
    text = ""
    for (session, step), line in made.items():
        values = {name: encode_float(value) if isinstance(value, float) else value for name, value in line.items()}
        text += json.dumps({"step": step, "session": session, **values}) + "\n"
    (folder / "scalars.jsonl").write_text(text)
    return folder


def same(found: Lines, expected: Lines) -> None:
    assert list(found) == sorted(expected)
    for place, line in expected.items():
        assert {name: repr(value) for name, value in found[place].items()} == {name: repr(value) for name, value in line.items()}


def read_back(path: Path) -> Lines:
    run = import_source(path)
    return {
        (int(row.get("session", 0)), int(row["step"])): {
            name: each for name, each in row.items() if name not in ("step", "session")
        }
        for row in run.rows
    }


def exported(source: Path, format: str, path: Path) -> Path:  # noqa: A002
    with path.open("wb") as sink:
        write(scalars_of(source), format, sink)
    return path


@pytest.mark.parametrize("format", TABLES)
@pytest.mark.parametrize("seed", range(6))
def test_every_value_and_every_missing_cell_comes_back(tmp_path, format, seed):  # noqa: A002
    made = lines(seed)
    run = recorded(tmp_path / "run", made)
    same(read_back(exported(run, format, tmp_path / f"table.{format}")), made)


@pytest.mark.parametrize("format", TABLES)
def test_what_was_exported_twice_is_the_same(tmp_path, format):  # noqa: A002
    run = recorded(tmp_path / "run", lines(3))
    once = exported(run, format, tmp_path / "once")
    again = exported(once, format, tmp_path / "again")
    same(read_back(again), read_back(once))


def test_a_run_keeps_what_it_is(tmp_path):
    run = recorded(tmp_path / "run", lines(1))
    (run / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "name": "nano", "vocabulary": 512}))
    for format in ("parquet", "arrow"):  # noqa: A001
        manifest = import_source(exported(run, format, tmp_path / format)).manifest
        assert (manifest.name, manifest.vocabulary) == ("nano", 512)
    assert import_source(exported(run, "csv", tmp_path / "csv")).manifest.source == "a table of ckaudit export"


def test_another_programs_log_can_be_exported(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,loss,lr\n1,2.5,\n2,nan,0.1\n1,2.25,0.2\n3,2.0,0.1\n")
    found = read_back(exported(log, "parquet", tmp_path / "log.parquet"))
    assert {place: {name: repr(value) for name, value in line.items()} for place, line in found.items()} == {
        (0, 1): {"train_loss_raw": "2.5"},
        (0, 2): {"train_loss_raw": "nan", "learning_rate": "0.1"},
        (1, 1): {"train_loss_raw": "2.25", "learning_rate": "0.2"},
        (1, 3): {"train_loss_raw": "2.0", "learning_rate": "0.1"},
    }


def test_checkpoints_fill_what_no_line_says(tmp_path):
    run = recorded(tmp_path / "run", {(0, 1): {"train_loss_raw": 3.0}, (1, 10): {"learning_rate": 0.5}})
    for step, loss in ((1, 9.0), (5, 2.5), (10, 2.0)):
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": loss, "scalars": {"tokens_seen": 10 * step}}
        (run / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    same(
        read_back(exported(run, "arrow", tmp_path / "x")),
        {
            (0, 1): {"train_loss_raw": 3.0, "tokens_seen": 10.0},
            (0, 5): {"train_loss_raw": 2.5, "tokens_seen": 50.0},
            (1, 10): {"train_loss_raw": 2.0, "learning_rate": 0.5, "tokens_seen": 100.0},
        },
    )


def test_a_run_without_any_scalar_is_refused(tmp_path):
    path = tmp_path / "analysis_checkpoint_step_00000001.json"
    path.write_text('{"schema_version": "ck.analysis.v1", "step": 1}')
    with pytest.raises(UnreadableError, match="holds no scalar"):
        scalars_of(path)


def test_duckdb_reads_the_parquet_as_the_help_says(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    made = lines(2)
    path = exported(recorded(tmp_path / "run", made), "parquet", tmp_path / "nano.parquet")
    query = f"SELECT step, train_loss_raw FROM '{path}' WHERE train_loss_raw IS NOT NULL AND NOT isnan(train_loss_raw)"
    losses = [(step, line["train_loss_raw"]) for (_, step), line in sorted(made.items()) if "train_loss_raw" in line]
    expected = [(step, value) for step, value in losses if not math.isnan(value)]
    connection = duckdb.connect()
    assert sorted(connection.execute(query).fetchall()) == sorted(expected)
    nulls, nans = connection.execute(
        f"SELECT count(*) FILTER (learning_rate IS NULL), count(*) FILTER (isnan(learning_rate)) FROM '{path}'"
    ).fetchone()
    assert nulls == sum("learning_rate" not in line for line in made.values())
    assert nans == sum(math.isnan(line.get("learning_rate", 0.0)) for line in made.values())


def test_a_history_for_wandb_only_goes_on(tmp_path):
    made: Lines = {
        (0, 1): {"train_loss_raw": 3.0, "time": 1.7e9},
        (0, 2): {"train_loss_raw": 9.0, "time": 1.7e9 + 1},
        (1, 2): {"train_loss_raw": 2.0, "time": 1.7e9 + 100.5},
        (1, 3): {"learning_rate": math.inf, "time": 1.7e9 + 101},
    }
    path = exported(recorded(tmp_path / "run", made), "wandb-csv", tmp_path / "history.csv")
    assert path.read_text().splitlines()[:3] == [
        "_step,_runtime,_timestamp,_ckaudit_session,train_loss_raw,learning_rate",
        "1,0,1700000000,0,3,",
        "2,100.5,1700000100.5,1,2,",
    ]
    same(
        read_back(path),
        {
            (0, 1): {"train_loss_raw": 3.0, "time": 1.7e9},
            (1, 2): {"train_loss_raw": 2.0, "time": 1.7e9 + 100.5},
            (1, 3): {"learning_rate": math.inf, "time": 1.7e9 + 101},
        },
    )


def test_several_row_groups_and_steps_of_any_size(tmp_path):
    count = 101_000
    text = "".join(f'{{"step":{step},"train_loss_raw":{step / 7}}}\n' for step in range(1, count + 1))
    (tmp_path / "scalars.jsonl").write_text(text + f'{{"step":{2**53},"train_loss_raw":1}}\n')
    path = exported(tmp_path, "parquet", tmp_path / "x.parquet")
    assert pq.ParquetFile(path).num_row_groups == 2
    table = import_source(path).table
    assert (table.steps[-1], len(table.steps)) == (2**53, count + 1)
    assert np.array_equal(table.values[0, :-1], np.arange(1, count + 1) / 7)


@for_each("format", TABLES)
@for_each("seed", range(12))
def test_broken_tables_give_an_error_of_ours_or_a_run(tmp_path, format, seed):  # noqa: A002
    source = random.Random(seed)
    data = bytearray(exported(recorded(tmp_path / "run", lines(1, count=20)), format, tmp_path / "whole").read_bytes())
    for _ in range(source.choice([0, 1, 5, 50])):
        data[source.randrange(len(data))] = source.randrange(256)
    end = source.choice([len(data), source.randrange(len(data)), 8])
    path = tmp_path / "broken"
    path.write_bytes(bytes(data[:end]))
    with suppress(CkauditError):
        import_source(path)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"step": [1, 1], "session": [0, 0]}, "stands twice"),
        ({"step": [-1, 1], "session": [0, 0]}, "is none"),
        ({"step": [1, None], "session": [0, 0]}, "broken"),
        ({"step": [1], "session": [0], "train_loss_raw": [[1.0]]}, "broken"),
        ({"step": [], "session": []}, "no rows"),
        ({"session": [1]}, "broken"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path, columns, reason):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata({"ckaudit.export": "1"}), path)
    with pytest.raises(UnreadableError, match=reason):
        import_source(path)


def test_its_columns_need_no_map(tmp_path):
    path = exported(recorded(tmp_path / "run", lines(1)), "csv", tmp_path / "x.csv")
    with pytest.raises(UsageError, match="need no --map"):
        import_source(path, import_options=ImportOptions(columns={"loss": "train_loss_raw"}))


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer message."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        if key & 7 == 0:
            value, place = varint(data, place)
            yield key >> 3, value
        else:
            size, place = (8, place) if key & 7 == 1 else varint(data, place)
            yield key >> 3, data[place : place + size]
            place += size


def events(path: Path) -> Iterator[dict[int, list[int | bytes]]]:
    stream = io.BytesIO(path.read_bytes())
    while header := stream.read(12):
        body = stream.read(struct.unpack("<Q", header[:8])[0])
        stream.read(4)
        event: dict[int, list[int | bytes]] = {}
        for number, value in fields(body):
            event.setdefault(number, []).append(value)
        yield event


def of_tensorboard(folder: Path) -> Lines:
    found: Lines = {}
    for session, path in enumerate(sorted(folder.iterdir())):
        first, *rest = events(path)
        assert first[3] == [b"brain.Event:2"]
        if session:
            assert rest.pop(0)[7] == [b"\x08\x01"]
        for event in rest:
            line = found.setdefault((session, int(event.get(2, [0])[0])), {})
            (time,) = struct.unpack("<d", event[1][0])
            if time:
                line["time"] = time
            for _, value in fields(event[5][0]):
                parts = dict(fields(value))
                tensor = dict(fields(parts[8]))
                tag = parts[1].decode()
                line[tag.removesuffix(":text")] = struct.unpack("<d", tensor[6])[0] if tensor[1] == 2 else tensor[8].decode()
    return found


@pytest.mark.parametrize("seed", range(5))
def test_event_files_hold_every_value(tmp_path, seed):
    made = {place: line for place, line in lines(seed).items() if set(line) - {"time"}}
    (tmp_path / "tb").mkdir()
    write_folder(scalars_of(recorded(tmp_path / "run", made)), "tensorboard", tmp_path / "tb")
    same(dict(sorted(of_tensorboard(tmp_path / "tb").items())), made)


@pytest.mark.parametrize("seed", range(4))
def test_event_files_come_back_through_the_importer_of_tensorboard(tmp_path, seed):
    pytest.importorskip("google.protobuf")
    source = random.Random(seed)
    made: Lines = {}
    for session, steps in enumerate((range(1, 41), range(30, 61, 3), range(50, 71))):
        for step in steps:
            line: dict[str, float | str] = {name: source.choice(ODD) for name in NAMES if source.random() < 0.6}
            made[session, step] = {**line, "train_loss_raw": session + 0.5, "time": 1.7e9 + 1e6 * session + step}
    (tmp_path / "tb").mkdir()
    write_folder(scalars_of(recorded(tmp_path / "run", made)), "tensorboard", tmp_path / "tb")
    same(read_back(tmp_path / "tb"), made)


ALL = (*TABLES, "tensorboard", "wandb-csv")
RUNS = ("zeroed_projection", "experts_two_ranks", "nan_batch", "float16_overflow")


def exported_in(source: Path, format: str, path: Path) -> Path:  # noqa: A002
    if format != "tensorboard":
        return exported(source, format, path)
    path.mkdir()
    write_folder(scalars_of(source), format, path)
    return path


@for_each("format", ALL)
@for_each("name", RUNS)
def test_every_line_that_was_recorded_comes_back_from_every_format(tmp_path, format, name):  # noqa: A002
    folder = Path(__file__).parents[2] / "fixtures" / "runs" / name
    found = read_back(exported_in(folder, format, tmp_path / f"{name}-{format}"))
    logged: Lines = {}
    for text in (folder / "scalars.jsonl").read_text().splitlines():
        line = json.loads(text)
        logged.setdefault((line.pop("session", 0), line.pop("step")), {}).update(line)
    numbers = {word: repr(float(word)) for word in ("NaN", "Infinity", "-Infinity")}
    for place, line in logged.items():
        for key, value in line.items():
            if key != "schema_version" and value is not None:
                expected = numbers.get(value, repr(value)) if isinstance(value, str) else repr(float(value))
                assert repr(found[place][key]) == expected, (key, place)


@pytest.mark.parametrize("format", ALL)
def test_names_that_no_catalogue_has_and_sessions_that_only_go_on_come_back(tmp_path, format):  # noqa: A002
    made: Lines = {
        (0, 1): {"time": 1.7e9},
        (0, 2): {"my own/score": 0.1, "min_normalized_entropy": 1 / 3, "lr_phase": "warm-up", "lr_phase/2": -0.0},
        (2, 3): {"my own/score": math.nan, "batch_hash": "12:text", "time": 1.7e9 + 5},
        (2, 2**40): {"batch_hash": "NaN of it"},
    }
    same(read_back(exported_in(recorded(tmp_path / "run", made), format, tmp_path / "out")), made)


def test_a_header_of_any_length_comes_back(tmp_path):
    made: Lines = {(0, 1): {f"relative_movement/layer.{index}.weight": index / 3 for index in range(5000)}}
    for format in ("csv", "wandb-csv"):  # noqa: A001
        same(read_back(exported(recorded(tmp_path / "run", made), format, tmp_path / format)), made)


def test_event_files_keep_what_a_run_is(tmp_path):
    run = recorded(tmp_path / "run", lines(1))
    (run / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "name": "nano", "vocabulary": 512}))
    manifest = import_source(exported_in(run, "tensorboard", tmp_path / "out")).manifest
    assert (manifest.name, manifest.vocabulary) == ("nano", 512)


def test_exports_in_folders_side_by_side_are_runs(tmp_path):
    (tmp_path / "tb").mkdir()
    for name, loss in (("a", 1.5), ("b", 2.5)):
        exported_in(recorded(tmp_path / name, {(0, 1): {"train_loss_raw": loss}}), "tensorboard", tmp_path / "tb" / name)
    assert {run.name: run.rows for run in import_runs(tmp_path / "tb")} == {
        "a": [{"step": 1, "train_loss_raw": 1.5}],
        "b": [{"step": 1, "train_loss_raw": 2.5}],
    }


def test_two_exports_in_one_folder_are_refused(tmp_path):
    for name in ("a", "b"):
        exported_in(recorded(tmp_path / f"run-{name}", {(0, 1): {"train_loss_raw": 1.5}}), "tensorboard", tmp_path / name)
    (source,) = (tmp_path / "b").iterdir()
    source.rename(tmp_path / "a" / f"{source.name}.copy")
    with pytest.raises(UnreadableError, match="both of session 0: two runs lie in one folder"):
        import_source(tmp_path / "a")


def test_an_export_that_was_cut_off_says_how_much_is_missing(tmp_path):
    folder = exported_in(recorded(tmp_path / "run", lines(0)), "tensorboard", tmp_path / "tb")
    path = next(folder.iterdir())
    path.write_bytes(path.read_bytes()[:-5])
    assert any("ends in the middle of an event" in note for note in import_source(folder).notes)


def test_lines_without_a_time_get_none_from_tensorboard(tmp_path):
    pytest.importorskip("google.protobuf")
    made: Lines = {(0, step): {"train_loss_raw": 1 / step} for step in range(1, 5)} | {
        (0, 5): {"learning_rate": math.nan, "time": 1.7e9}
    }
    (tmp_path / "tb").mkdir()
    write_folder(scalars_of(recorded(tmp_path / "run", made)), "tensorboard", tmp_path / "tb")
    same(read_back(tmp_path / "tb"), made)


def slow_crc(data: bytes) -> int:
    """Return CRC-32C bit by bit, as RFC 3720 defines it."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_every_record_carries_its_checksums(tmp_path):
    assert slow_crc(b"123456789") == 0xE3069283
    (tmp_path / "tb").mkdir()
    write_folder(scalars_of(recorded(tmp_path / "run", lines(1, count=5))), "tensorboard", tmp_path / "tb")
    for path in (tmp_path / "tb").iterdir():
        stream = io.BytesIO(path.read_bytes())
        while header := stream.read(12):
            body = stream.read(struct.unpack("<Q", header[:8])[0])
            for part, check in ((header[:8], header[8:]), (body, stream.read(4))):
                crc = slow_crc(part)
                assert struct.unpack("<I", check)[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
