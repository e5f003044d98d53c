"""Tables that are not read as any CSV is: Lightning's, YOLO's, a chart of Weights & Biases; and those of Keras and levanter."""

import math

import pytest

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


LIGHTNING = "epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss\n"


def test_lightning_counts_steps_from_0(imported):
    rows = "0,0.1,49,,2.0,\n0,0.1,99,,1.5,\n0,,99,,,1.75\n0,,99,1.9,,\n1,0.2,149,,nan,\n"
    run = imported(LIGHTNING + rows, "metrics.csv")
    assert run.source == "Lightning metrics.csv"
    assert curve(run, "val_loss") == {100: 1.75}
    assert curve(run, "learning_rate") == {50: 0.1, 100: 0.1, 150: 0.2}
    losses = curve(run, "train_loss_raw")
    assert list(losses) == [50, 100, 150]
    assert math.isnan(losses[150])
    assert noted(run, "train_loss_raw could also be train_loss_epoch")


@pytest.mark.parametrize("rows", ["0,,50,,2,\n0,,100,,1,\n0,,100,,,3\n", "0,,10,,2,\n1,,25,,1,\n1,,25,,,1\n"])
def test_steps_that_count_from_1_are_no_lightnings(imported, rows):
    run = imported(LIGHTNING + rows, "metrics.csv")
    assert run.source == "CSV"
    assert min(row["step"] for row in run.rows) in (10, 50)


def test_lightning_a_mapped_step_is_taken_as_it_stands(imported):
    text = "epoch,step,trainer/updates,train_loss,val_loss\n0,0,1,2.0,\n0,1,2,1.5,\n0,1,2,,3\n"
    assert [row["step"] for row in imported(text, "metrics.csv").rows] == [1, 2]
    assert [row["step"] for row in imported(text, "metrics.csv", step="trainer/updates").rows] == [1, 2]


PARTS = ("train/box_loss", "train/cls_loss", "metrics/mAP50(B)", "val/box_loss", "val/cls_loss", "lr/pg0", "lr/pg1")
YOLO = ",".join(f"{name:>23}" for name in ("epoch", *PARTS)) + "\n"


@pytest.mark.parametrize("first", [0, 1])
def test_yolo_sums_the_parts_of_its_loss(imported, first):
    rows = "".join(f"   {first + epoch},  {3 - epoch}, 0.5,  0.1,  2.5,  {0.25 + epoch},  0.01, 0.02\n" for epoch in range(3))
    run = imported(YOLO + rows, "results.csv")
    assert run.source == "YOLO results.csv"
    assert run.rows == [
        {"step": 1 + epoch, "train_loss_raw": 3.5 - epoch, "val_loss": 2.75 + epoch, "learning_rate": 0.01} for epoch in range(3)
    ]
    assert noted(run, "train_loss_raw as train/box_loss + train/cls_loss")
    assert noted(run, "epochs are the axis")


def test_yolo_a_sum_needs_all_its_parts(imported):
    run = imported(YOLO + "1,3,,0.1,2,nan,0.01,0\n2,3,1,0.1,2,1,0.01,0\n", "results.csv")
    assert curve(run, "train_loss_raw") == {2: 4.0}
    assert math.isnan(curve(run, "val_loss")[1])


def test_yolo_a_classifier_has_its_loss_whole(imported):
    run = imported("epoch,time,train/loss,metrics/accuracy_top1,val/loss,lr/pg0\n1,9,2.0,0.5,2.5,0.1\n2,9,1,0.5,2,0.1\n", "r.csv")
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.0}
    assert curve(run, "val_loss") == {1: 2.5, 2: 2.0}


CHART = (
    '"Step","brisk - sun-1 - train/loss","brisk - sun-1 - train/loss__MIN","brisk - sun-1 - train/loss__MAX",'
    '"dry-2 - train/loss","dry-2 - train/loss__MIN","dry-2 - train/loss__MAX"\n'
    '"10","3.0","2.5","3.5","","",""\n"20","2.0","2.0","2.0","9.0","9.0","9.0"\n"30","","","","8.0","8.0","8.0"\n'
)


def test_each_run_of_a_chart_is_a_run(tmp_path):
    path = tmp_path / "wandb_export.csv"
    path.write_text(CHART)
    first, second = import_runs(path)
    assert (first.name, second.name) == ("brisk - sun-1", "dry-2")
    assert first.source == "Weights & Biases CSV"
    assert curve(first, "train_loss_raw") == {10: 3.0, 20: 2.0}
    assert curve(second, "train_loss_raw") == {20: 9.0, 30: 8.0}
    assert curve(import_source(path, import_options=ImportOptions(run="2")), "train_loss_raw") == {20: 9.0, 30: 8.0}
    with pytest.raises(UsageError, match="holds 2 runs"):
        import_source(path)


def test_a_chart_of_one_run_has_no_name(imported):
    run = imported("Step,a - loss,a - loss__MIN,a - loss__MAX\n1,2,1,3\n", "chart.csv")
    assert (run.name, run.rows) == ("", [{"step": 1, "train_loss_raw": 2.0}])


def test_a_chart_of_an_unknown_metric_can_be_named_without_its_run(imported):
    text = "global_step,a - mse,a - mse__MIN,a - mse__MAX\n1,2,1,3\n"
    with pytest.raises(UnreadableError, match="a chart of mse"):
        imported(text, "chart.csv")
    assert imported(text, "chart.csv", loss="mse").rows == [{"step": 1, "train_loss_raw": 2.0}]


def test_a_chart_over_time_has_no_steps(imported):
    run = imported("Relative Time (Process),a - loss,a - loss__MIN,a - loss__MAX\n0.5,2,1,3\n0.9,1,1,1\n", "chart.csv")
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.0}
    assert noted(run, "save the chart over its steps")


@pytest.mark.parametrize(("first", "counted"), [(0, "which the file counts from 0"), (1, "end of epoch N;")])
def test_keras_csv_logger_counts_epochs(imported, first, counted):
    rows = "".join(f"{first + epoch},0.5,{3 - epoch},{'NA' if epoch == 2 else 4}\n" for epoch in range(3))
    run = imported(f"epoch,accuracy,loss,val_loss\n{rows}", "training.log")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0, 3: 1.0}
    assert curve(run, "val_loss") == {1: 4.0, 2: 4.0}
    assert noted(run, "epochs are the axis")
    assert noted(run, counted)


def test_keras_csv_logger_that_was_appended_to_is_a_resume(imported):
    run = imported("epoch,loss\n0,3\n1,2\n2,1.5\n1,2.5\n2,1.75\n", "training.log")
    assert [(row["session"], row["step"]) for row in run.rows] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.mark.parametrize("epochs", ["0.1,0.2", "1,1", "x,1"])
def test_epochs_that_are_no_axis_are_not_taken(imported, epochs):
    first, second = epochs.split(",")
    assert noted(imported(f"epoch,loss\n{first},3\n{second},2\n", "log.csv"), "rows were numbered from 1")


def test_levanter_under_its_own_names(imported):
    header = "_step,train/loss,optim/learning_rate,grad/norm/total,throughput/total_tokens,throughput/tokens_per_second,eval/loss"
    run = imported(f"{header},throughput/duration,eval/paloma/c4_en/loss\n10,2,0.1,1.5,4096,100,3,0.5,4\n", "levanter.csv")
    assert run.rows == [
        {
            "step": 10,
            "train_loss_raw": 2.0,
            "learning_rate": 0.1,
            "grad_global_norm": 1.5,
            "tokens_seen": 4096.0,
            "tokens_per_sec": 100.0,
            "val_loss": 3.0,
            "step_time": 0.5,
            "slice_val_loss/paloma/c4_en": 4.0,
        }
    ]


def test_a_table_of_wandb_has_a_counter_of_updates_before_its_calls(imported):
    text = "_step,train/global_step,train/loss,lr\n0,10,3,\n1,,,0.5\n2,20,2,\n"
    run = imported(text, "history.csv")
    assert run.rows == [{"step": 10, "train_loss_raw": 3.0, "learning_rate": 0.5}, {"step": 20, "train_loss_raw": 2.0}]
    assert [row["step"] for row in imported(text, "history.csv", step="_step").rows] == [0, 1, 2]
    assert noted(imported("_step,loss\n1,2\n", "history.csv"), "_step counts calls")


def test_the_share_of_the_peak_is_no_percentage(imported):
    assert curve(imported("step,loss,throughput/mfu\n1,2,45\n", "levanter.csv"), "mfu") == {1: pytest.approx(0.45)}


def test_statistics_of_layers_become_checkpoints(imported):
    header = "step,train/loss,grad/norm/total,grad/norm/layers.0.weight,grad/norm/layers.1.weight,odd"
    run = imported(f"{header}\n1,2,1.5,0.5,,1\n2,1,1.25,0.25,0.75,1\n", "levanter.csv")
    assert curve(run, "grad_global_norm") == {1: 1.5, 2: 1.25}
    assert [(each["step"], sorted(each["gradients"])) for each in run.documents] == [
        (1, ["layers.0.weight"]),
        (2, ["layers.0.weight", "layers.1.weight"]),
    ]
    assert run.documents[1]["gradients"]["layers.1.weight"]["norm"] == 0.75
    assert noted(run, "left out, because no common name says what they are: odd")
    lines = "".join(f'{{"step": {step}, "loss": 1, "grad/norm/layers.0.weight": 0.5}}\n' for step in (1, 2))
    assert len(imported(lines, "log.jsonl").documents) == 2
