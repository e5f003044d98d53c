"""MMEngine's and MMCV's JSON logs."""

import json

import pytest

from ckaudit.errors import UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source


def noted(run, words):
    return any(words in note for note in run.notes)


def lines(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def train(step, loss, **more):
    return {
        "base_lr": 0.1,
        "lr": 0.01,
        "data_time": 0.25,
        "loss": loss,
        "loss_bbox": 9,
        "time": 0.5,
        "epoch": 1,
        "iter": step,
        "memory": 3,
        "step": step,
        **more,
    }


MMENGINE = (
    train(50, 3.0),
    train(100, 2.0, grad_norm=1.5),
    {"coco/mAP": 0.5, "data_time": 9, "time": 9, "step": 0},
    train(150, 1.5),
)


def test_units_are_the_catalogues_and_an_evaluation_times_itself(imported):
    run = imported(lines(*MMENGINE), "scalars.json")
    assert run.source == "MMEngine JSON log"
    common = {"learning_rate": 0.01, "step_time": 0.5, "dataloader_stall_frac": 0.5, "gpu_mem_used": 3 * 2.0**20}
    assert run.rows == [
        {"step": 50, "train_loss_raw": 3.0, **common},
        {"step": 100, "train_loss_raw": 2.0, "grad_global_norm": 1.5, **common},
        {"step": 150, "train_loss_raw": 1.5, **common},
    ]
    assert noted(run, "loss_bbox, coco/mAP")


def test_an_evaluation_stands_at_the_update_before_it_whatever_it_says(imported):
    run = imported(lines(*MMENGINE), "scalars.json", **{"microbench_score/coco": "coco/mAP"})
    assert {row["step"]: row["microbench_score/coco"] for row in run.rows if "microbench_score/coco" in row} == {100: 0.5}
    assert noted(run, "1 evaluations say no update")


def test_an_evaluation_before_any_update_is_at_step_0(imported):
    run = imported(lines(MMENGINE[2], MMENGINE[0]), "scalars.json", **{"microbench_score/coco": "coco/mAP"})
    assert run.rows[0] == {"step": 0, "microbench_score/coco": 0.5}


def test_a_loss_of_an_evaluation_is_the_validation_loss(imported):
    run = imported(lines(*MMENGINE[:2], {"loss": 2.5, "data_time": 1, "time": 1, "step": 1}), "scalars.json")
    assert {row["step"]: row["val_loss"] for row in run.rows if "val_loss" in row} == {100: 2.5}
    assert [row["train_loss_raw"] for row in run.rows] == [3.0, 2.0]


@pytest.mark.parametrize(("more", "source"), [({}, "MMEngine JSON log"), ({"loss": 2.5, "lr": 0.1}, "JSON lines")])
def test_only_evaluations_hold_times_and_a_step_alone(imported, more, source):
    entries = [{"data_time": 0.1, "time": 0.4 + step % 3, "step": step, "score": 0.5, **more} for step in range(1, 9)]
    run = imported(lines(*entries), "scalars.json", **{"microbench_score/s": "score"})
    assert run.source == source
    losses = {row["step"]: row["train_loss_raw"] for row in run.rows if "train_loss_raw" in row}
    assert losses == (dict.fromkeys(range(1, 9), 2.5) if more else {})


def test_each_start_in_a_folder_is_a_run(tmp_path):
    for start in ("20240101_000000", "20240102_000000"):
        folder = tmp_path / start / "vis_data"
        folder.mkdir(parents=True)
        (folder / f"{start}.json").write_text(lines(*MMENGINE))
        (folder / "config.py").write_text("x = 1\n")
    assert [run.name for run in import_runs(tmp_path)] == ["20240101_000000", "20240102_000000"]
    assert len(import_source(tmp_path, import_options=ImportOptions(run="20240102_000000")).rows) == 3
    with pytest.raises(UsageError, match="holds 2 runs"):
        import_source(tmp_path)


def test_the_log_of_one_start_is_read_once(tmp_path):
    (tmp_path / "vis_data").mkdir()
    for name in ("scalars.json", "20240101_000000.json"):
        (tmp_path / "vis_data" / name).write_text(lines(*MMENGINE))
    assert [run.name for run in import_runs(tmp_path)] == [""]
    assert len(import_source(tmp_path / "vis_data").rows) == 3


META = {"env_info": "sys.platform: linux", "seed": 7, "exp_name": "detector.py"}


def old(epoch, place, loss, mode="train", **more):
    return {
        "mode": mode,
        "epoch": epoch,
        "iter": place,
        "lr": 0.01,
        "memory": 2,
        "data_time": 0.1,
        "loss": loss,
        "time": 0.4,
        **more,
    }


def test_iterations_that_begin_anew_in_each_epoch_are_counted_on(imported):
    entries = [old(1, 50, 4.0), old(1, 100, 3.0), {"mode": "val", "epoch": 1, "iter": 5000, "lr": 0.01, "bbox_mAP": 0.5}]
    run = imported(lines(META, *entries, old(2, 50, 2.0), old(2, 100, 1.0)), "x.log.json", **{"microbench_score/box": "bbox_mAP"})
    assert run.source == "MMCV JSON log"
    assert {row["step"]: row["train_loss_raw"] for row in run.rows if "train_loss_raw" in row} == {
        50: 4.0,
        100: 3.0,
        150: 2.0,
        200: 1.0,
    }
    assert {row["step"] for row in run.rows if "microbench_score/box" in row} == {100}
    assert (run.manifest.seed, run.manifest.name) == (7, "detector.py")
    assert noted(run, "taken as 100")


def test_iterations_of_the_whole_training_are_steps(imported):
    run = imported(lines(old(1, 50, 4.0), old(1, 100, 3.0), old(2, 150, 2.0), old(2, 16, 2.5, mode="val")), "x.log.json")
    assert {row["step"]: row["train_loss_raw"] for row in run.rows} == {50: 4.0, 100: 3.0, 150: 2.0}
    assert run.rows[-1]["val_loss"] == 2.5
    assert run.rows[-1]["gpu_mem_used"] == 2.0**21
    assert run.rows[-1]["dataloader_stall_frac"] == 0.25
