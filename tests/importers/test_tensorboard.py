"""TensorBoard's event files: those of real runs, and those that its writers write here."""

import math
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.cli.run import run as command
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source
from ckaudit.importers.trackers.crc32c import masked_checksums
from ckaudit.importers.trackers.tfevents import messages, records

pytest.importorskip("tensorboardX")
FIXTURES = Path(__file__).parents[2] / "fixtures"
ALGOPERF, TRACKERS = FIXTURES / "real" / "algoperf", FIXTURES / "trackers"
CRITEO, SPEECH = (ALGOPERF / name for name in ("criteo_genadam_inf_step73", "deepspeech_baseline_healthy"))


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name, session=0):
    return {row["step"]: row[name] for row in run.rows if name in row and row.get("session", 0) == session}


def events_in(folder):
    (path,) = folder.glob("*tfevents*")
    return path


@pytest.fixture
def writer(tmp_path):
    from tensorboardX import SummaryWriter

    def made(folder="", **options):
        return SummaryWriter(str(tmp_path / folder), flush_secs=1, **options)

    return made


@pytest.fixture
def written(tmp_path):
    """Write records of our own making, each an event with values, and import them."""

    def run(*events, tail=b"", **columns):
        event_class = messages()["Event"]
        data = framed(event_class(wall_time=1.0).SerializeToString() + b"\x1a\x0dbrain.Event:2")
        for number, (step, values) in enumerate(events):
            event = event_class(wall_time=100.0 + number, step=step)
            for tag, fields in values.items():
                value = event.summary.value.add(tag=tag.encode())
                fields(value)
            data += framed(event.SerializeToString())
        path = tmp_path / "events.out.tfevents.1.host"
        path.write_bytes(data + tail)
        return import_source(path, import_options=ImportOptions(columns=columns))

    return run


def slow_crc(data):
    """CRC-32C bit by bit, by its definition."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    state ^= 0xFFFFFFFF
    return (((state >> 15) | (state << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def framed(event):
    size = struct.pack("<Q", len(event))
    return size + struct.pack("<I", slow_crc(size)) + event + struct.pack("<I", slow_crc(event))


@pytest.mark.parametrize(
    "lengths", [[1, 2, 3], [4], [5, 63, 64, 65], [128, 129, 511, 512], [513, 515, 516, 1024, 1027, 1500, 5000], [4] * 50]
)
def test_checksums_are_those_of_the_definition(lengths):
    source = random.Random(len(lengths))
    parts = [source.randbytes(length) for length in lengths]
    starts = np.cumsum([0, *lengths])[:-1]
    found = masked_checksums(np.frombuffer(b"".join(parts), np.uint8), starts, np.array(lengths))
    assert found.tolist() == [slow_crc(part) for part in parts]


@pytest.mark.parametrize("folder", [CRITEO, SPEECH], ids=lambda folder: folder.name)
def test_a_run_is_the_same_as_a_table_and_as_events(folder):
    """TensorFlow wrote 32 bits; the table holds their shortest decimals, and an empty cell where the event holds NaN."""
    table, events = import_source(folder / "measurements.csv"), import_source(events_in(folder))
    assert set(events.table.names) - {"time"} == set(table.table.names)
    for name in table.table.names:
        one = {step: np.float32(value) for step, value in curve(table, name).items()}
        other = {step: np.float32(value) for step, value in curve(events, name).items()}
        assert one.keys() == other.keys()
        np.testing.assert_array_equal(list(one.values()), [other[step] for step in one])


# Counted by a loop over the bytes with a decoder of its own, twenty lines that know lengths and fields alone.
@pytest.mark.parametrize(
    ("folder", "name", "count", "missing", "first", "last", "lowest", "where"),
    [
        (SPEECH, "train_loss_raw", 480, 0, 0, 47900, 1.0464626550674438, 45700),
        (SPEECH, "grad_global_norm", 480, 0, 0, 47900, 0.33134540915489197, 400),
        (SPEECH, "val_loss", 29, 0, 1, 48000, 0.41774117946624756, 46551),
        (CRITEO, "train_loss_raw", 100, 26, 0, 99, 0.13741302490234375, 25),
        (CRITEO, "learning_rate", 100, 0, 0, 99, 0.0, 0),
        (CRITEO, "val_loss", 63, 62, 1, 10666, 0.7592779397964478, 1),
    ],
)
def test_counts_ends_and_minima(folder, name, count, missing, first, last, lowest, where):
    values = curve(import_source(events_in(folder)), name)
    known = {step: value for step, value in values.items() if not math.isnan(value)}
    assert (len(values), len(values) - len(known), min(values), max(values)) == (count, missing, first, last)
    assert (min(known.values()), min(known, key=known.__getitem__)) == (lowest, where)


def test_nan_is_nan_and_infinity_infinity():
    loss = curve(import_source(events_in(CRITEO)), "train_loss_raw")
    assert (round(loss[71], 4), loss[72], loss[73]) == (18.292, 4523269.0, math.inf)
    assert [step for step, value in loss.items() if math.isnan(value)] == list(range(74, 100))


def test_the_blow_up_gets_the_verdict_of_its_table():
    report = triage(events_in(CRITEO))
    assert report.severity == "sev0"
    assert {each.first_step for each in report.findings if each.name == "nonfinite_values"} == {73, 171}
    (spike,) = [each for each in report.findings if each.name == "loss_spike" and each.severity != "note"]
    assert spike.first_step <= 71 <= spike.last_step
    assert report.diagnoses[0].cause == "learning_rate_too_high"


def test_the_healthy_run_gets_at_most_a_note():
    assert [each.message for each in triage(events_in(SPEECH)).findings if each.severity != "note"] == []


def test_evaluations_on_training_examples_are_no_training_loss():
    run = import_source(events_in(SPEECH))
    assert noted(run, "train_loss_raw from loss")
    assert noted(run, "evaluate a part of another split")


def log(writer, steps, *, shift=0.0):
    for step in steps:
        writer.add_scalar("train/loss", 3.0 - step / 100 + shift, step)
        writer.add_scalar("train/grad_norm", 1.0, step)
        writer.add_scalar("epoch", 0.5, step)
    writer.close()


def test_scalars_of_a_writer(writer, tmp_path):
    log(writer(), range(1, 11))
    run = import_source(tmp_path)
    assert curve(run, "train_loss_raw") == pytest.approx({step: 3.0 - step / 100 for step in range(1, 11)}, rel=1e-6)
    assert set(run.table.names) == {"train_loss_raw", "grad_global_norm", "time"}
    assert noted(run, "epoch")
    assert import_source(events_in(tmp_path)).rows == run.rows


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("Loss/train", "train_loss_raw"),
        ("Train/Loss", "train_loss_raw"),
        ("Loss/val", "val_loss"),
        ("loss/validation", "val_loss"),
        ("Loss/test", "val_loss"),
        ("Accuracy/test", "microbench_score/test_accuracy"),
        ("eval/loss", "val_loss"),
        ("lr-AdamW", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"),
        ("lr", "learning_rate"),
    ],
)
def test_tags_that_guides_and_trainers_use(written, tag, name):
    assert curve(written((1, {tag: simple(1.0)})), name) == {1: 1.0}


def test_what_ckaudit_exports_comes_back_as_it_was(tmp_path):
    source = TRACKERS / "wandb"
    assert command(["export", str(source), "--run", "first", "--to", "tensorboard", "-q", "-o", str(tmp_path / "events")]) == 0
    before, after = import_source(source, import_options=ImportOptions(run="first")), import_source(tmp_path / "events")
    assert [sorted(map(str, row.items())) for row in after.rows] == [sorted(map(str, row.items())) for row in before.rows]


def test_a_restart_writes_a_second_file_and_is_a_resume(writer, tmp_path):
    log(writer(filename_suffix=".b"), range(1, 21))
    log(writer(filename_suffix=".a"), range(15, 26), shift=0.5)
    run = import_source(tmp_path)
    assert list(curve(run, "train_loss_raw")) == list(range(1, 21))
    assert list(curve(run, "train_loss_raw", 1)) == list(range(15, 26))
    assert noted(run, "first from 20 to 15")
    assert noted(run, "2 event files")


def test_a_restart_that_goes_on_is_no_resume(writer, tmp_path):
    log(writer(), range(1, 6))
    log(writer(filename_suffix=".more"), range(6, 11))
    run = import_source(tmp_path)
    assert list(curve(run, "train_loss_raw")) == list(range(1, 11))
    assert not noted(run, "go back")


def test_a_purge_step_is_a_resume_though_the_new_values_are_others_names(writer, tmp_path):
    log(writer(), range(1, 11))
    second = writer(filename_suffix=".more", purge_step=8)
    second.add_scalar("val/loss", 1.0, 8)
    second.close()
    run = import_source(tmp_path)
    assert noted(run, "first from 10 to 8")
    assert curve(run, "val_loss", 1) == {8: 1.0}


def test_folders_are_runs_and_one_is_named(writer, tmp_path):
    log(writer("lr_0.1/seed_1"), range(1, 4))
    log(writer("lr_0.2"), range(1, 6))
    assert [each.name for each in import_runs(tmp_path)] == ["lr_0.1/seed_1", "lr_0.2"]
    assert len(import_source(tmp_path, import_options=ImportOptions(run="lr_0.2")).rows) == 5
    with pytest.raises(UsageError, match="holds 2 runs"):
        import_source(tmp_path)


def test_a_run_without_a_known_series_is_named_and_left_out(writer, tmp_path):
    log(writer("good"), range(1, 4))
    other = writer("other")
    other.add_scalar("score", 1.0, 1)
    other.close()
    (run,) = import_runs(tmp_path)
    assert run.name == "good"
    assert noted(run, "1 more runs hold no series that is known and were left out: other")


def test_series_that_are_written_together_lie_beside_the_run(writer, tmp_path):
    main = writer()
    for step in range(1, 6):
        main.add_scalar("lr", 0.1, step)
        main.add_scalars("loss", {"train": 3.0 - step, "val": 4.0 - step}, step)
    main.close()
    (run,) = import_runs(tmp_path)
    assert curve(run, "train_loss_raw") == {step: 3.0 - step for step in range(1, 6)}
    assert curve(run, "val_loss") == {step: 4.0 - step for step in range(1, 6)}
    assert noted(run, "folders beside the run were joined to it")


def test_settings_written_beside_the_run_belong_to_it(writer, tmp_path):
    main = writer()
    main.add_scalar("loss", 1.0, 1)
    main.add_hparams({"lr": 0.25, "name": "wide", "nesterov": True}, {"hparam/accuracy": 0.5}, name="1700000000.5")
    main.close()
    (run,) = import_runs(tmp_path)
    assert run.manifest.config == {"lr": 0.25, "name": "wide", "nesterov": True}


def test_settings_of_hugging_faces_trainer(writer, tmp_path):
    main = writer()
    main.add_text(
        "args", '{"max_steps": 500, "per_device_train_batch_size": 8, "max_grad_norm": 1.0, "warmup_steps": 0, "seed": 3}'
    )
    main.add_text("model_config", '{"hidden_size": 64}')
    main.add_scalar("train/loss", 2.0, 10)
    main.close()
    run = import_source(tmp_path)
    assert (run.manifest.planned_steps, run.manifest.clip_norm, run.manifest.seed) == (500, 1.0, 3)
    assert run.manifest.trainer == "huggingface"
    assert run.manifest.model == {"hidden_size": 64}
    assert not run.manifest.warmup_steps


def test_keras_writes_epochs_into_two_folders(writer, tmp_path):
    for folder, shift in (("train", 0.0), ("validation", 1.0)):
        part = writer(folder)
        for epoch in range(3):
            part.add_scalar("epoch_loss", 2.0 - epoch / 2 + shift, epoch)
        part.close()
    (run,) = import_runs(tmp_path)
    assert curve(run, "train_loss_raw") == {0: 2.0, 1: 1.5, 2: 1.0}
    assert curve(run, "val_loss") == {0: 3.0, 1: 2.5, 2: 2.0}
    assert noted(run, "a step here is an epoch")


def test_histograms_with_sums_give_exact_norms(writer, tmp_path):
    values = {step: np.random.default_rng(step).normal(size=500) * step for step in (10, 20)}
    main = writer()
    for step, tensor in values.items():
        main.add_histogram("gradients/blocks.0.weight", tensor, step)
        main.add_scalar("loss", 1.0, step)
    main.close()
    run = import_source(tmp_path)
    assert [each["step"] for each in run.documents] == [10, 20]
    for document in run.documents:
        (entry,) = document["gradients"].values()
        tensor = values[document["step"]]
        assert entry["norm"] == pytest.approx(np.linalg.norm(tensor), rel=1e-12)
        assert entry["std"] == pytest.approx(tensor.std(), rel=1e-9)
        assert (entry["min"], entry["max"]) == (tensor.min(), tensor.max())
        assert entry["numel"] == 500
        assert sum(entry["histogram"]["counts"]) == 500
        median = entry["percentiles"][3]
        assert abs(median - np.median(tensor)) < 0.1 * tensor.std()


def as_tensor(array, plugin, *, content=True):
    def fill(value):
        value.metadata.plugin_data.plugin_name = plugin
        value.tensor.dtype = {"float32": 1, "float64": 2, "int64": 9, "float16": 19}[str(array.dtype)]
        for size in array.shape:
            value.tensor.tensor_shape.dim.add(size=size)
        if content:
            value.tensor.tensor_content = array.tobytes()
        else:
            value.tensor.float_val.extend(array.ravel().tolist())

    return fill


def simple(number):
    def fill(value):
        value.simple_value = number

    return fill


def test_histograms_that_are_tensors(written):
    values = np.linspace(-3, 5, 4001)
    counts, edges = np.histogram(values, bins=30)
    cells = np.stack([edges[:-1], edges[1:], counts], axis=1)
    run = written((7, {"blocks.1.weight": as_tensor(cells, b"histograms"), "loss": simple(1.0)}))
    (document,) = run.documents
    (entry,) = document["weights"].values()
    assert entry["frobenius_norm"] == pytest.approx(np.linalg.norm(values), rel=0.01)
    assert (entry["min"], entry["max"]) == (-3.0, 5.0)


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "float16"])
def test_scalars_that_are_tensors_of_any_type(written, kind):
    run = written(
        (1, {"loss": as_tensor(np.array(2, kind), b"scalars")}), (2, {"loss": as_tensor(np.array(3, kind), b"scalars")})
    )
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 3.0}


def test_scalars_whose_value_stands_in_a_list(written):
    run = written((1, {"loss": as_tensor(np.array(1.5, "float32"), b"scalars", content=False)}))
    assert curve(run, "train_loss_raw") == {1: 1.5}


def test_images_and_odd_tensors_are_no_series(written):
    odd = np.zeros((2, 2), "float32")
    run = written((1, {"loss": simple(1.0), "picture": as_tensor(odd, b"images"), "odd": as_tensor(odd, b"mine")}))
    assert noted(run, "1 tensors are neither numbers nor histograms")
    assert set(run.table.names) == {"train_loss_raw", "time"}


def test_a_writer_that_was_told_no_step_gets_counted_ones(written):
    run = written(*[(0, {"loss": simple(3.0 - number)}) for number in range(3)])
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0, 3: 1.0}
    assert noted(run, "all points of train_loss_raw stand at step 0")


def test_points_below_step_0_are_counted(written):
    run = written((-1, {"loss": simple(9.0)}), (1, {"loss": simple(1.0)}))
    assert curve(run, "train_loss_raw") == {1: 1.0}
    assert noted(run, "1 points stand below step 0")


def test_series_named_by_the_user(written):
    events = [(step, {"loss": simple(1.0), "my/own": simple(2.0 * step)}) for step in (1, 2)]
    assert curve(written(*events, loss="my/own"), "train_loss_raw") == {1: 2.0, 2: 4.0}
    with pytest.raises(UsageError, match="its own step"):
        written(*events, step="my/own")


def test_no_known_series_says_what_there_is(written):
    with pytest.raises(UnreadableError, match=r"none of its series has a name that is known: score") as raised:
        written((1, {"score": simple(1.0)}))
    assert "--map" in raised.value.hint
    with pytest.raises(UnreadableError, match=r"no event in .* holds a number"):
        written()


def test_a_torn_end_is_left_out_and_said_to_be(written):
    run = written((1, {"loss": simple(1.0)}), (2, {"loss": simple(2.0)}), tail=framed(b"x" * 40)[:-9])
    assert len(run.rows) == 2
    assert noted(run, "ends in the middle of an event: 47 bytes")


def test_an_event_whose_checksum_is_wrong_is_left_out(written):
    run = written((1, {"loss": simple(1.0)}), tail=framed(b"x" * 40)[:-1] + b"\0")
    assert noted(run, "1 events with a wrong checksum were left out")


def test_a_file_cut_anywhere_keeps_what_is_whole(tmp_path):
    data = events_in(CRITEO).read_bytes()
    path = tmp_path / "events.out.tfevents.1.x"
    counts = []
    for end in [*range(0, len(data), 7013), len(data)]:
        path.write_bytes(data[:end])
        try:
            counts.append(len(import_source(path).rows))
        except UnreadableError:
            counts.append(0)
    assert counts == sorted(counts)
    assert counts[-1] > 150


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_never_change_a_value(tmp_path, seed):
    source = random.Random(seed)
    whole = events_in(CRITEO)
    truth = {name: curve(import_source(whole), name) for name in ("train_loss_raw", "val_loss")}
    data = bytearray(whole.read_bytes())
    for _ in range(source.choice([1, 10, 100])):
        data[source.randrange(len(data))] = source.randrange(256)
    path = tmp_path / "events.out.tfevents.1.x"
    path.write_bytes(bytes(data))
    try:
        run = import_source(path)
    except CkauditError:
        return
    for name, values in truth.items():
        found = curve(run, name)
        assert found == pytest.approx({step: values[step] for step in found}, nan_ok=True)


@pytest.mark.parametrize("seed", range(20))
def test_broken_messages_with_right_checksums_raise_nothing_else(tmp_path, seed):
    source = random.Random(seed)
    data = events_in(CRITEO).read_bytes()
    path = tmp_path / "events.out.tfevents.1.x"
    broken = framed(b"\x1a\x0dbrain.Event:2")
    for start, end in source.sample(records(data).events, 30):
        event = bytearray(data[start:end])
        for _ in range(source.choice([1, 3])):
            event[source.randrange(len(event))] = source.randrange(256)
        broken += framed(bytes(event))
    path.write_bytes(broken)
    try:
        run = import_source(path)
    except CkauditError:
        return
    assert all(isinstance(row["step"], int) and row["step"] >= 0 for row in run.rows)


def test_links_out_of_the_folder_are_not_followed(writer, tmp_path):
    log(writer("outside"), range(1, 4))
    log(writer("logs/inside"), range(1, 3))
    (tmp_path / "logs" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "logs" / "events.out.tfevents.9.link").symlink_to(events_in(tmp_path / "outside"))
    (run,) = import_runs(tmp_path / "logs")
    assert len(run.rows) == 2


def test_a_name_alone_makes_no_event_file(tmp_path):
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"step,loss\n1,2\n")
    with pytest.raises(UnreadableError, match="a folder in which no log is known"):
        import_source(tmp_path)


def test_without_protobuf_the_hint_names_the_extra(written, monkeypatch):
    import sys

    written((1, {"loss": simple(1.0)}))
    messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(UsageError, match="needs protobuf") as raised:
        import_source(events_in(CRITEO))
    assert "[tensorboard]" in raised.value.hint
    messages.cache_clear()
