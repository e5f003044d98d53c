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
