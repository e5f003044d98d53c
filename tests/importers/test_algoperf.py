"""AlgoPerf's measurements.csv."""

import math

HEADER = "global_step,grad_norm,loss,lr,train/loss,validation/loss,validation/num_examples,accumulated_submission_time"


def test_only_rows_of_updates_hold_the_training_loss(imported):
    run = imported(f"{HEADER}\n0,1.5,3.0,0.1,,,,\n1,,,,9.0,8.0,100,5\n100,1.25,2.0,0.1,,,,\n")
    assert run.source == "AlgoPerf measurements.csv"
    assert run.rows == [
        {"step": 0, "train_loss_raw": 3.0, "grad_global_norm": 1.5, "learning_rate": 0.1},
        {"step": 1, "val_loss": 8.0},
        {"step": 100, "train_loss_raw": 2.0, "grad_global_norm": 1.25, "learning_rate": 0.1},
    ]
    assert any("train/loss" in note and "left out" in note for note in run.notes)


def test_an_empty_cell_in_a_row_of_its_kind_was_nan(imported):
    run = imported(f"{HEADER}\n0,1.5,3.0,0.1,,,,\n1,,,0.2,,,,\n2,,,,,8.0,100,5\n3,,,,,,100,5\n4,,,,,,,9\n")
    assert [row["step"] for row in run.rows] == [0, 1, 2, 3]
    assert math.isnan(run.rows[1]["train_loss_raw"])
    assert math.isnan(run.rows[1]["grad_global_norm"])
    assert run.rows[2] == {"step": 2, "val_loss": 8.0}
    assert math.isnan(run.rows[3]["val_loss"])
    assert any("1 empty cells of loss were NaN" in note for note in run.notes)


def test_a_column_that_was_never_logged_is_not_nan(imported):
    header = HEADER.replace(",lr", "")
    assert imported(f"{header}\n0,,3.0,,,,\n1,,2.0,,,,\n").rows == [
        {"step": 0, "train_loss_raw": 3.0},
        {"step": 1, "train_loss_raw": 2.0},
    ]


def test_a_column_mapped_by_the_user_is_taken_as_it_stands(imported):
    run = imported(f"{HEADER}\n0,1.5,3.0,0.1,,,,\n1,,,,9.0,8.0,100,5\n", loss="train/loss")
    assert [row.get("train_loss_raw") for row in run.rows] == [None, 9.0]
