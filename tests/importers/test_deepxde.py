"""DeepXDE's table, whose losses are lists of terms."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]
HEADER = "Step      Train loss              Test loss               Test metric   \n"
ROWS = """\
0         [4.50e+01, 5.00e-01]    [4.70e+01, 2.50e-01]    [1.03e+00]
1000      [2.50e-01, 1.25e-01]    [5.00e-01, 1.25e-01]    [3.59e-03]
2000      [1.25e-01, 6.25e-02]    [2.50e-01, 6.25e-02]    []
"""
LOG = f"Compiling model...\n'compile' took 0.000312 s\n\nTraining model...\n\n{HEADER}{ROWS}\nBest model at step 2000:\n"


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_a_loss_is_the_sum_of_its_terms(imported: Import) -> None:
    run = imported(LOG, "train.log")
    assert run.source == "DeepXDE table"
    assert curve(run, "train_loss_raw") == {0: 45.5, 1000: 0.375, 2000: 0.1875}
    assert curve(run, "val_loss") == {0: 47.25, 1000: 0.625, 2000: 0.3125}
    assert any("the training loss is the sum of the terms of Train loss" in note for note in run.notes)
    assert any("metrics on test points were left out" in note for note in run.notes)


def test_one_term_and_many_are_read(imported: Import) -> None:
    terms = ", ".join(["1.00e+00"] * 100)
    run = imported(f"{HEADER}0  [5.00e-01]  [2.50e-01]  []\n9  [{terms}]  [{terms}]  []\n", "train.log")
    assert curve(run, "train_loss_raw") == {0: 0.5, 9: 100.0}


def test_a_loss_that_is_no_number_is_found(tmp_path: Path, imported: Import) -> None:
    text = f"{LOG}{HEADER}3000      [nan, 1.00e-02]         [inf, 1.00e-02]         [nan]\n"
    run = imported(text, "train.log")
    assert math.isnan(curve(run, "train_loss_raw")[3000])
    assert curve(run, "val_loss")[3000] == math.inf
    path = tmp_path / "train.log"
    path.write_text(text)
    assert ("NUM001", 3000) in {(each.code, each.first_step) for each in triage(path).findings}


def test_rows_that_are_broken_are_left_out(imported: Import) -> None:
    run = imported(
        f"{LOG}3000      [1.00e-01, oops]    [2.50e-01]   []\n4000      [1.00e-01, 6.25e-02]    [2.50e-01, 6.2", "train.log"
    )
    assert curve(run, "train_loss_raw") == {0: 45.5, 1000: 0.375, 2000: 0.1875}
    assert curve(run, "val_loss")[3000] == 0.25


def test_a_second_optimizer_goes_on_and_steps_that_begin_anew_are_another_run(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    again = ROWS.splitlines()[2]
    path.write_text(f"{LOG}\n{HEADER}{again}\n2100      [1.00e-01, 0.00e+00]    [1.00e-01, 0.00e+00]    []\n")
    (run,) = import_runs(path)
    assert [row["step"] for row in run.rows] == [0, 1000, 2000, 2100]
    path.write_text(LOG + LOG)
    assert [[row["step"] for row in run.rows] for run in import_runs(path)] == [[0, 1000, 2000]] * 2


@pytest.mark.parametrize(
    "text", [ROWS, HEADER, HEADER + ROWS.replace("[", "(").replace("]", ")"), LOG.replace("Train loss", "Train gain")]
)
def test_what_only_looks_alike_is_left(imported: Import, text: str) -> None:
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(text, "train.log")
