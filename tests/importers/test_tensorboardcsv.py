"""A scalar of TensorBoard saved as CSV, whose name stands in the name of the file."""

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import ImportOptions, import_runs

ROWS = "Wall time,Step,Value\n1796046994.5,20,0.75\n1796046997.25,40,0.5\n"


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("run-version_3-tag-val_loss.csv", "val_loss"),
        ("run-.-tag-train_loss.csv", "train_loss_raw"),
        ("run-a-tag-b-tag-Loss_train (1).csv", "train_loss_raw"),
        ("run-exp_train-tag-epoch_learning_rate.csv", None),
    ],
)
def test_the_tag_of_the_file_names_its_values(tmp_path, name, metric):
    file = tmp_path / name
    file.write_text(ROWS)
    if metric is None:
        with pytest.raises(UnreadableError, match="none of its columns has a name that is known") as refused:
            import_runs(file)
        assert "--map loss=COLUMN" in refused.value.hint
        return
    (run,) = import_runs(file)
    assert [(row["step"], row["time"], row[metric]) for row in run.rows] == [(20, 1796046994.5, 0.75), (40, 1796046997.25, 0.5)]


def test_the_user_names_the_values_of_a_file_of_any_name(tmp_path):
    file = tmp_path / "download.csv"
    file.write_text(ROWS)
    (run,) = import_runs(file, import_options=ImportOptions(columns={"loss": "Value"}))
    assert [row["train_loss_raw"] for row in run.rows] == [0.75, 0.5]


def saved(folder, run, tag, points):
    """Save a scalar as the browser names it."""
    rows = "".join(f"{1796046990.0 + time},{step},{value}\n" for time, step, value in points)
    (folder / f"run-{run}-tag-{tag}.csv").write_text(f"Wall time,Step,Value\n{rows}")


def values(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def test_tags_of_one_run_in_a_folder_are_its_series(tmp_path):
    saved(tmp_path, "exp-tag-7", "Loss_train", [(n, 10 * n, 3 - n / 10) for n in range(10)])
    saved(tmp_path, "exp-tag-7", "val_loss", [(5.5, 50, "NaN"), (9.5, 90, 1.25)])
    saved(tmp_path, "exp-tag-7", "mood", [(0, 0, 1.0)])
    (tmp_path / "chart.png").write_bytes(b"\x89PNG")
    (run,) = import_runs(tmp_path)
    assert (run.source, run.name) == ("TensorBoard CSV", "exp-tag-7")
    assert values(run, "train_loss_raw") == {10 * n: 3 - n / 10 for n in range(10)}
    assert values(run, "val_loss") == {50: pytest.approx(float("nan"), nan_ok=True), 90: 1.25}
    assert values(run, "time")[20] == 1796046992.0
    assert any(note.startswith("left out") and "mood" in note for note in run.notes)
    (mapped,) = import_runs(tmp_path, import_options=ImportOptions(columns={"loss": "mood"}))
    assert values(mapped, "train_loss_raw") == {0: 1.0}


def test_several_runs_in_a_folder_are_told_apart_by_their_names(tmp_path):
    for run in ("a", "b"):
        saved(tmp_path, run, "loss", [(n, n, 2.0) for n in range(5)])
        saved(tmp_path, run, "lr", [(n, n, 0.1) for n in range(5)])
    assert [(run.name, set(run.table.names)) for run in import_runs(tmp_path)] == [
        ("a", {"train_loss_raw", "learning_rate", "time"}),
        ("b", {"train_loss_raw", "learning_rate", "time"}),
    ]


def test_a_run_that_went_back_has_two_sessions_by_its_times(tmp_path):
    first = [(n, n, 3.0 - n / 100) for n in range(20)]
    later = [(30 + n, 10 + n, 2.0 - n / 100) for n in range(20)]
    saved(tmp_path, "a", "loss", first + later)
    saved(tmp_path, "a", "lr", [(time + 0.01, step, 0.1) for time, step, _ in first + later])
    (run,) = import_runs(tmp_path)
    assert [row["session"] for row in run.rows] == [0] * 20 + [1] * 20
    assert all("learning_rate" in row for row in run.rows)


def test_a_line_that_is_cut_off_is_left_out(tmp_path):
    saved(tmp_path, "a", "loss", [(n, n, 2.0) for n in range(5)])
    saved(tmp_path, "a", "lr", [(n, n, 0.1) for n in range(5)])
    with (tmp_path / "run-a-tag-lr.csv").open("a") as file:
        file.write("1796046999.0,\n1796046999.5,7,oops\n17960")
    (run,) = import_runs(tmp_path)
    assert values(run, "learning_rate") == dict.fromkeys(range(5), 0.1)
    assert "3 lines hold no step and number: left out" in run.notes


@pytest.mark.parametrize("name", ["train.log", "run-a-tag-lr.csv", "deeper/run-a-tag-lr.csv"])
def test_a_folder_in_which_other_logs_lie_is_searched_for_them(tmp_path, name):
    saved(tmp_path, "a", "loss", [(n, n, 2.0) for n in range(5)])
    saved(tmp_path, "a", "val_loss", [(n, n, 2.5) for n in range(5)])
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("step,loss\n1,2.5\n2,2.25\n3,2.0\n")
    assert {run.name for run in import_runs(tmp_path)} == {"run-a-tag-loss.csv", "run-a-tag-val_loss.csv", name}


def test_one_tag_of_each_run_is_a_log_by_itself(tmp_path):
    saved(tmp_path, "a", "loss", [(n, n, 2.0) for n in range(5)])
    saved(tmp_path, "b", "loss", [(n, n, 2.0) for n in range(5)])
    assert [run.name for run in import_runs(tmp_path)] == ["run-a-tag-loss.csv", "run-b-tag-loss.csv"]
