"""One series in a table whose file has its name, as Neptune gives it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported

Import = Callable[..., Imported]


def table(values: list[float]) -> str:
    rows = (f"{n},{n}.0,{value},2025-03-11 09:14:{n % 60:02}.500000+00:00" for n, value in enumerate(values))
    return "\n".join([",step,value,timestamp", *rows, ""])


def test_the_name_of_the_file_is_that_of_its_values(imported: Import) -> None:
    run = imported(table([3.0, 2.5, 2.25]), "train_loss.csv")
    assert run.source == "series CSV"
    assert [(row["step"], row["train_loss_raw"]) for row in run.rows] == [(0, 3.0), (1, 2.5), (2, 2.25)]
    assert run.rows[1]["time"] - run.rows[0]["time"] == 1.0
    assert [row["val_loss"] for row in imported("step,value\n1,3\n2,2\n", "val_loss.csv").rows] == [3.0, 2.0]


@pytest.mark.parametrize("name", ["something.csv", "step.csv", "time.csv"])
def test_a_file_of_another_name_needs_to_be_told(imported: Import, name: str) -> None:
    with pytest.raises(UnreadableError):
        imported(table([3.0, 2.5]), name)
    assert imported(table([3.0, 2.5]), name, loss="value").rows[1]["train_loss_raw"] == 2.5


def test_a_table_with_other_columns_is_none(imported: Import) -> None:
    assert imported("step,value,loss\n1,3,4\n2,2,3\n", "val_loss.csv").source == "CSV"


def test_a_loss_that_stands_to_the_last_digit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train_loss.csv"
    moving = [1.4 + 1.6 * 0.96**n + 0.05 * (n % 3) for n in range(60)]
    path.write_text(table(moving + [1.4231472149558893] * 190))
    assert triage(path).severity == "sev2"
    path.write_text(table(moving))
    assert triage(path).severity is None
