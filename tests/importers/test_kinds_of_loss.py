"""Losses that are none of a training, sums of parts, and tables between blanks: as their programs write them."""

from ckaudit.audit import triage
from ckaudit.importers import Choice, import_source


def values(run, name: str) -> list[float]:
    return [row[name] for row in run.rows if name in row]


def test_the_loss_of_a_policy_is_no_training_loss_unless_it_is_named(tmp_path):
    file = tmp_path / "progress.csv"
    rows = "".join(f"{n},{n * 10},{n % 3},0.0003\n" for n in range(1, 20))
    file.write_text("time/iterations,rollout/ep_rew_mean,train/loss,train/learning_rate\n" + rows)
    run = import_source(file)
    assert values(run, "train_loss_raw") == []
    assert any("train/loss was left out: beside rewards of episodes" in note for note in run.notes)
    assert values(import_source(file, choice=Choice(columns={"loss": "train/loss"})), "train_loss_raw")[:3] == [1.0, 2.0, 0.0]


def test_the_loss_of_a_policy_that_is_no_number_any_more_is_an_illness_like_any_other(tmp_path):
    file = tmp_path / "progress.csv"
    rows = "".join(f"{n},{n * 10},{n % 3 if n < 15 else 'nan'},0.0003\n" for n in range(1, 20))
    file.write_text("time/iterations,rollout/ep_rew_mean,train/loss,train/learning_rate\n" + rows)
    assert values(import_source(file), "train_loss_raw")[:3] == [1.0, 2.0, 0.0]
    (finding,) = [each for each in triage(file).findings if each.code == "NUM001"]
    assert (finding.severity, finding.first_step) == ("sev0", 15)


def test_epochs_of_yolo_that_were_not_evaluated_have_no_validation_loss(tmp_path):
    file = tmp_path / "results.csv"
    rows = "".join(f"{n},{3 / n:.4f},{1 / n:.4f},{0 if n % 2 else 2 / n:.4f},0,0.5,0.01\n" for n in range(1, 7))
    file.write_text("epoch,train/box_loss,train/cls_loss,val/box_loss,val/cls_loss,metrics/mAP50(B),lr/pg0\n" + rows)
    run = import_source(file)
    assert values(run, "val_loss") == [1.0, 0.5, 0.3333]
    assert values(run, "train_loss_raw")[:2] == [4.0, 2.0]
    assert any("exactly 0 at 3 epochs" in note for note in run.notes)


def test_the_error_of_training_of_deepmd(tmp_path):
    file = tmp_path / "lcurve.out"
    head = "#  step      rmse_val    rmse_trn    rmse_e_val  rmse_e_trn         lr\n"
    first = "      0      1.05e+01    1.02e+01      4.7e-01     4.6e-01    1.0e-03\n"
    second = "    100      2.10e+00    2.44e+00      2.7e-02     2.4e-02    9.0e-04\n"
    file.write_text(head + first + second + " 200 1\n")
    run = import_source(file)
    assert run.source == "DeePMD-kit lcurve.out"
    assert [row["step"] for row in run.rows] == [0, 100]
    assert values(run, "train_loss_raw") == [10.2, 2.44]
    assert values(run, "val_loss") == [10.5, 2.1]
    assert run.manifest.loss_kind == "other"
    assert any("1 lines are not as wide" in note for note in run.notes)
