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


FILE = """\
# step, loss_train, loss_test, metrics_test
0.000000000000000000e+00 4.500000000000000000e+01 5.0e-01 4.70e+01 2.5e-01 1.03e+00
1.000000000000000000e+03 2.500000000000000000e-01 1.25e-01 5.00e-01 1.25e-01 3.59e-03
"""


def test_a_file_of_losses_has_as_many_terms_for_training_as_for_testing(imported: Import) -> None:
    run = imported(FILE, "loss.dat")
    assert run.source == "DeepXDE table"
    assert curve(run, "train_loss_raw") == {0: 45.5, 1000: 0.375}
    assert curve(run, "val_loss") == {0: 47.25, 1000: 0.625}


def test_a_loss_on_the_training_points_is_no_held_out_loss(tmp_path: Path, imported: Import) -> None:
    same = "# step, loss_train, loss_test, metrics_test\n" + "".join(
        f"{step:.6e} {2 / step:.6e} {2 / step:.6e}\n" for step in (1, 10, 100, 1000)
    )
    run = imported(same, "loss.dat")
    assert curve(run, "train_loss_raw") == {1: 2.0, 10: 0.2, 100: 0.02, 1000: 0.002}
    assert not curve(run, "val_loss")
    assert any("the same points" in note for note in run.notes)
    path = tmp_path / "loss.dat"
    path.write_text(same)
    assert "DATA005" not in {finding.code for finding in triage(path).findings}


def test_a_file_of_losses_that_is_cut_off_keeps_its_whole_rows(imported: Import) -> None:
    run = imported(FILE + "2.000000000000000000e+03 1.25e-01 6.2\noops 1.0 1.0 1.0 1.0\n", "loss.dat")
    assert curve(run, "train_loss_raw")[1000] == 0.375
    assert 2000 not in curve(run, "val_loss") or math.isfinite(curve(run, "val_loss")[2000])
