"""Stores of DVCLive, ClearML, Comet, Sacred, Ray Tune, fastai and Lightning, as their own libraries wrote them: every value."""

import io
import json
import math
import random
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source, logs_below
from tests.loops import for_each

TRACKERS = Path(__file__).parents[2] / "fixtures" / "trackers"
STORES = {
    "dvclive": TRACKERS / "dvclive",
    "clearml": TRACKERS / "clearml" / "session.zip",
    "comet": TRACKERS / "comet" / "second.zip",
    "sacred": TRACKERS / "sacred" / "1",
}
SOURCES = {
    "dvclive": "DVCLive folder",
    "clearml": "ClearML offline session",
    "comet": "Comet offline experiment",
    "sacred": "Sacred metrics.json",
}
each_store = pytest.mark.parametrize("store", STORES)


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def expected(infinite=math.inf):
    """Return the training loss that was logged, by hand: NaN at 7, infinite at 8."""
    return {step: 3 * math.exp(-step / 20) for step in range(1, 21)} | {7: math.nan, 8: infinite}


@each_store
def test_every_value_is_imported_and_nothing_else(store):
    run = import_source(STORES[store])
    assert run.source == SOURCES[store]
    infinite = math.nan if store == "clearml" else math.inf  # ClearML writes 0 for both
    assert curve(run, "train_loss_raw") == pytest.approx(expected(infinite), nan_ok=True, rel=1e-15)
    assert curve(run, "val_loss") == pytest.approx({step: 2 * math.exp(-step / 20) for step in (10, 20)}, rel=1e-15)
    assert curve(run, "learning_rate") == dict.fromkeys(range(1, 21), 0.1)
    timed = () if store == "dvclive" else ("time",)
    assert set(run.table.names) == {"train_loss_raw", "val_loss", "learning_rate", *timed}
    assert noted(run, "score")


@each_store
def test_the_configuration_is_kept(store):
    manifest = import_source(STORES[store]).manifest
    assert manifest.seed == 7
    assert float(manifest.config["lr"]) == 0.1


@pytest.mark.parametrize("store", ["clearml", "comet", "sacred"])
def test_times_are_unix_seconds(store):
    times = list(curve(import_source(STORES[store]), "time").values())
    assert times == sorted(times)
    assert 1.7e9 < times[0] < 1.9e9


@each_store
def test_a_series_can_be_named_by_the_user(store):
    name = "train/score" if store == "comet" else "score"
    run = import_source(STORES[store], import_options=ImportOptions(columns={"loss": name}))
    assert curve(run, "train_loss_raw") == {step: float(step) for step in range(1, 21)}
    with pytest.raises(UsageError, match="scor"):
        import_source(STORES[store], import_options=ImportOptions(columns={"loss": "scor"}))


@each_store
def test_every_command_takes_a_store_under_its_own_format(store):
    (one,) = import_runs(STORES[store], import_options=ImportOptions(format=store))
    assert len(one.table.steps) == 20


@for_each("store, names", [("clearml", ("task.json", "metrics.jsonl")), ("comet", ("experiment.json", "messages.json"))])
def test_an_archive_that_was_unpacked_reads_the_same(tmp_path, store, names):
    folder = tmp_path / store / "second"
    with zipfile.ZipFile(STORES[store]) as archive:
        archive.extractall(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert repr(import_source(folder).rows) == repr(import_source(STORES[store]).rows)


@for_each("store", ["clearml", "comet"])
def test_a_session_that_lies_there_packed_and_unpacked_is_one_run(tmp_path, store):
    folder = tmp_path / store
    folder.mkdir()
    for name in ("one", "two"):
        shutil.copy(STORES[store], folder / f"{name}.zip")
    with zipfile.ZipFile(STORES[store]) as archive:
        archive.extractall(folder / "two")
    assert len(import_runs(folder)) == 2
    (tmp_path / f"{store}-project").mkdir()
    folder.rename(tmp_path / f"{store}-project" / "offline")
    assert [run.name for run in logs_below(tmp_path / f"{store}-project").runs] == ["offline/one.zip", "offline/two"]


@for_each("place", ["", ".neptune", ".neptune/offline", ".neptune/offline/run__second"])
def test_every_value_that_neptune_wrote_is_imported(place):
    """Neptune writes neither the NaN of step 7 nor the infinity of step 8, at which there is a rate."""
    run = import_source(TRACKERS / "neptune" / place)
    assert curve(run, "train_loss_raw") == pytest.approx(expected(math.nan), nan_ok=True, rel=1e-15)
    assert curve(run, "val_loss") == pytest.approx({step: 2 * math.exp(-step / 20) for step in (10, 20)}, rel=1e-15)
    assert curve(run, "learning_rate") == dict.fromkeys(range(1, 21), 0.1)
    assert set(run.table.names) == {"train_loss_raw", "val_loss", "learning_rate", "time"}
    assert (run.source, run.name) == ("Neptune offline run", "second")
    assert (run.manifest.seed, run.manifest.config["lr"]) == (7, 0.1)
    assert noted(run, "leaves out NaN and infinity")


@for_each(
    "losses, rates, broken",
    [
        (range(1, 60), range(1, 101), range(60, 101)),  # from 60 on the loss is not finite
        (range(10, 101, 10), range(1, 101), ()),  # a loss every ten steps
        (range(10, 101, 10), range(10, 101), ()),
        (range(1, 101), range(1, 101), ()),
        (range(1, 60), range(0, 101, 10), ()),
        ([1], range(1, 101), ()),
    ],
)
def test_only_a_loss_that_was_logged_with_another_series_was_left_out_by_neptune(tmp_path, losses, rates, broken):
    operations = [{"type": "LogFloats", "path": ["loss"], "values": [{"value": 2.0, "step": step} for step in losses]}]
    operations += [{"type": "LogFloats", "path": ["lr"], "values": [{"value": 0.1, "step": step} for step in rates]}]
    path = tmp_path / "data-1.log"
    path.write_text("".join(json.dumps({"obj": operation}) + "\n" for operation in operations))
    loss = dict.fromkeys(losses, 2.0) | dict.fromkeys(broken, math.nan)
    assert curve(import_source(path), "train_loss_raw") == pytest.approx(loss, nan_ok=True)


def test_points_without_a_step_follow_each_other_and_what_is_no_operation_is_counted_in_neptune(tmp_path):
    points = [{"value": 2.0, "ts": 1.8e9}, {"value": 1.5, "step": 9}, {"value": 1.0, "step": None}, {"value": "x"}, 7]
    operations = [{"type": "LogFloats", "path": ["\x1b[31mtrain", "loss"], "values": points[:1]}]
    operations += [{"type": "LogFloats", "path": ["loss"], "values": values} for values in (points, 3)]
    lines = [json.dumps({"obj": operation, "version": 1}) for operation in operations]
    path = tmp_path / "data-1.log"
    path.write_text("\n".join([*lines, '{"obj": {"type": "LogFlo']))
    run = import_source(path)
    assert curve(run, "train_loss_raw") == {0: 2.0, 9: 1.5, 10: 1.0}
    assert noted(run, "4 lines or points hold no operation or no number")
    assert noted(run, "31mtrain/loss")


def test_numbered_runs_of_sacred_are_listed():
    assert [run.name for run in import_runs(TRACKERS / "sacred")] == ["1", "2"]
    assert import_source(TRACKERS / "sacred", import_options=ImportOptions(run="2")).manifest.name == "second"


def test_values_of_numpy_are_numbers_in_sacred(tmp_path):
    path = tmp_path / "metrics.json"
    boxed = {"py/object": "numpy.float32", "dtype": "float32", "value": 0.5}
    path.write_text(json.dumps({"loss": {"steps": [1, 2, 3], "timestamps": ["?", None], "values": [boxed, 0.25, "x"]}}))
    run = import_source(path)
    assert curve(run, "train_loss_raw") == {1: 0.5, 2: 0.25}
    assert noted(run, "1 entries hold no step and number")


@pytest.mark.parametrize("name", ["result.json", "progress.csv"])
def test_reports_of_ray_are_read_by_their_number(name):
    run = import_source(TRACKERS / "ray" / "train_00001" / name)
    assert run.source == "Ray Tune results"
    known = {step: 2 * value for step, value in expected().items()}
    assert curve(run, "train_loss_raw") == pytest.approx(known, nan_ok=True, rel=1e-15)
    assert curve(run, "val_loss") == pytest.approx({step: 2 * math.exp(-step / 20) for step in (10, 20)}, rel=1e-15)
    assert noted(run, "step from training_iteration")


def test_trials_of_ray_are_runs_with_their_settings():
    first, second = import_runs(TRACKERS / "ray")
    assert (first.name, second.name) == ("train_00000", "train_00001")
    assert (second.manifest.config, second.manifest.seed) == ({"scale": 2, "seed": 7}, 7)


def test_a_count_of_updates_goes_before_that_of_reports(tmp_path):
    path = tmp_path / "result.json"
    own = {"time_this_iter_s": 1.0, "time_total_s": 1.0}
    path.write_text("".join(json.dumps({"loss": 1 / n, "step": 100 * n, "training_iteration": n, **own}) + "\n" for n in (1, 2)))
    assert curve(import_source(path), "train_loss_raw") == {100: 1.0, 200: 0.5}


def test_versions_of_lightning_are_runs():
    first, second = import_runs(TRACKERS / "lightning_logs")
    assert (first.name, second.name) == ("version_0", "version_1")
    lines = (TRACKERS / "lightning_logs" / "version_1" / "metrics.csv").read_text().splitlines()[1:]
    logged = {int(step) + 1: float(loss) for _, step, loss, _ in (line.split(",") for line in lines) if loss}
    assert curve(second, "train_loss_raw") == logged
    assert second.manifest.config == {"lr": 0.1}


def test_the_history_of_fastai_counts_epochs():
    path = TRACKERS / "fastai" / "history.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    run = import_source(path)
    assert curve(run, "train_loss_raw") == {int(row[0]) + 1: float(row[1]) for row in rows}
    assert curve(run, "val_loss") == {int(row[0]) + 1: float(row[2]) for row in rows}
    assert noted(run, "epochs are the axis")


def test_words_for_what_was_not_recorded_in_a_table_of_keras(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("epoch\taccuracy\tloss\tval_accuracy\tval_loss\n0\t0.5\t1.5\tNA\tNA\n1\t0.5\tnan\tNA\tNA\n")
    run = import_source(path)
    assert curve(run, "train_loss_raw") == pytest.approx({1: 1.5, 2: math.nan}, nan_ok=True)
    assert not curve(run, "val_loss")


@for_each(
    "name, taken, value, kept",
    [
        ("loss", "train_loss_raw", 2.0, math.nan),
        ("loss", "train_loss_raw", 1e-4, 0.0),
        ("grad_norm", "grad_global_norm", 2.0, math.nan),
        ("lr", "learning_rate", 2.0, 0.0),
    ],
)
def test_a_loss_of_0_is_no_number_in_clearml_unless_it_was_small_before(tmp_path, name, taken, value, kept):
    folder = tmp_path / f"session{name}{value}"
    folder.mkdir()
    (folder / "task.json").write_text('{"name": "x\\u001b[31m"}')
    event = {"type": "training_stats_scalar", "metric": name, "variant": name}
    events = [{**event, "iter": step, "value": each} for step, each in enumerate((value, 0.0, 0.0))]
    (folder / "metrics.jsonl").write_text(json.dumps(events) + "\n{torn")
    run = import_source(folder)
    assert curve(run, taken) == pytest.approx({0: value, 1: kept, 2: kept}, nan_ok=True)
    assert noted(run, "1 lines or events hold no scalar")


def test_a_metric_without_a_step_stands_at_the_one_before_it_in_comet(tmp_path):
    (tmp_path / "experiment.json").write_text("{}")
    metrics = [("loss", 1.5, 3), ("loss", 1.25, 4), ("lr", "0.5", None), ("loss", "x", 5)]
    messages = [{"payload": {"metric": {"metricName": n, "metricValue": v, "step": s}}} for n, v, s in metrics]
    (tmp_path / "messages.json").write_text("".join(json.dumps(message) + "\n" for message in messages) + '"torn')
    run = import_source(tmp_path)
    assert [(row["step"], row.get("learning_rate")) for row in run.rows] == [(3, None), (4, 0.5)]
    assert noted(run, "2 lines hold no message")


@each_store
def test_a_store_without_a_known_name_says_what_it_holds(tmp_path, store):
    copy = tmp_path / STORES[store].name
    whole = {"comet": b'"loss"', "clearml": b'"loss"'}.get(store)
    if whole is None:
        shutil.copytree(STORES[store], copy)
        for path in [*copy.rglob("loss.tsv"), *copy.rglob("lr.tsv")]:
            path.unlink()
        for path in copy.rglob("metrics.json"):
            kept = {name: lists for name, lists in json.loads(path.read_text()).items() if name == "score"}
            path.write_text(json.dumps(kept))
    else:
        with zipfile.ZipFile(STORES[store]) as old, zipfile.ZipFile(copy, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(whole, b'"this"').replace(b'"lr"', b'"so"'))
    with pytest.raises(UnreadableError, match=r"name that is known|no line"):
        import_source(copy)


@for_each("store", ["clearml", "comet"])
def test_an_archive_that_was_cut_off_is_refused_with_the_reason(tmp_path, store):
    path = tmp_path / f"{store}.zip"
    path.write_bytes(STORES[store].read_bytes()[:-200])
    with pytest.raises(UnreadableError, match="cut off or broken"):
        import_source(path)


def test_an_archive_that_is_broken_within_is_refused(tmp_path):
    data = bytearray(STORES["comet"].read_bytes())
    data[-900] ^= 0xFF
    path = tmp_path / "x.zip"
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableError, match=r"messages\.json in it cannot be unpacked"):
        import_source(path)


def test_a_bomb_is_not_unpacked(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("task.json", "{}")
        with archive.open("metrics.jsonl", "w", force_zip64=True) as member:
            for _ in range(257):
                member.write(b" " * 2**20)
    path = tmp_path / "bomb.zip"
    path.write_bytes(packed.getvalue())
    with pytest.raises(UnreadableError, match=r"metrics\.jsonl in it is 269,484,032 bytes unpacked"):
        import_source(path)


def test_an_archive_of_something_else_stays_one(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "loss")
    with pytest.raises(UnreadableError, match="is a zip archive"):
        import_source(path)


def test_links_that_lead_out_of_a_store_do_not_count(tmp_path):
    secret = tmp_path / "secret.tsv"
    secret.write_text("step\tloss\n1\t2.5\n")
    folder = tmp_path / "dvclive" / "plots" / "metrics"
    folder.mkdir(parents=True)
    (folder / "loss.tsv").symlink_to(secret)
    with pytest.raises(UnreadableError, match="no log is known"):
        import_source(tmp_path / "dvclive")


def test_the_project_folder_of_accelerate_is_one_run(tmp_path):
    pytest.importorskip("tensorboardX")
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(log_with=["tensorboard"], project_dir=str(tmp_path), cpu=True)
    accelerator.init_trackers("my_run", config={"lr": 0.1})
    for step in range(5):
        accelerator.log({"train_loss": 2 / (step + 1), "lr": 0.1}, step=step)
    accelerator.end_training()
    run = import_source(tmp_path)
    assert curve(run, "train_loss_raw") == pytest.approx({step: 2 / (step + 1) for step in range(5)}, rel=1e-7)


def test_the_table_of_stable_baselines_names_the_loss_that_it_leaves_out(tmp_path):
    path = tmp_path / "progress.csv"
    header = "time/iterations,rollout/ep_rew_mean,train/learning_rate,train/loss,train/value_loss\n"
    path.write_text(header + "1,0.0,0.0003,1.5,\n2,10.0,0.0003,0.75,\n3,20.0,0.0003,0.5,0.25\n")
    run = import_source(tmp_path)
    assert curve(run, "learning_rate") == dict.fromkeys((1, 2, 3), 0.0003)
    assert noted(run, "losses of a policy")
    taken = import_source(path, import_options=ImportOptions(columns={"loss": "train/loss"}))
    assert curve(taken, "train_loss_raw") == {1: 1.5, 2: 0.75, 3: 0.5}


def test_the_tables_of_catalyst_are_found_by_loader(tmp_path):
    for name, loss in (("train", 2.0), ("valid", 2.5)):
        (tmp_path / f"{name}.csv").write_text(f"step,loss,lr\n1,{loss},0.1\n2,{loss / 2},0.1\n")
    with pytest.raises(UsageError) as caught:
        import_source(tmp_path)
    assert "train.csv" in caught.value.hint
    assert "valid.csv" in caught.value.hint


@for_each("seed", range(60))
def test_broken_stores_give_an_error_of_ours_or_a_run(tmp_path, seed):
    source = random.Random(seed)
    name = source.choice([*STORES, "ray", "lightning_logs"])
    copy = tmp_path / str(seed)
    shutil.copytree(TRACKERS / name, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    for path in source.sample(files, min(3, len(files))):
        data = bytearray(path.read_bytes())
        for _ in range(source.choice([1, 5, 50])):
            data[source.randrange(len(data))] = source.choice([0, 34, 44, 45, 57, 91, 123, 125, 255])
        path.write_bytes(data[: source.choice([len(data), source.randrange(len(data))])])
    with suppress(CkauditError):
        import_runs(copy)


@for_each("value", [1e400, -(10**400), "9" * 5000, [], {}, None, True, "\ud800"])
def test_odd_values_in_every_place_of_an_event(tmp_path, value):
    folder = tmp_path / str(abs(hash(str(value))))
    folder.mkdir()
    (folder / "task.json").write_text(json.dumps({"name": value, "hyperparams": {"General": {"lr": {"value": value}}}}))
    whole = {"type": "training_stats_scalar", "metric": "loss", "variant": "loss", "iter": 1, "value": 2.5, "timestamp": 1.7e12}
    events = [{**whole, key: value} for key in whole] + [{**whole, "iter": 9}]
    (folder / "metrics.jsonl").write_text(json.dumps(events) + "\n" + json.dumps(value) + "\n")
    assert curve(import_source(folder), "train_loss_raw")[9] == 2.5
