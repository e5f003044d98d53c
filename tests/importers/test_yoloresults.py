"""YOLO's results without a header, a row an epoch."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.importers import Imported

Import = Callable[..., Imported]
ROWS = """\
     0/299   11.8G  0.0625  0.03125  0  0.09375  30  640  0.0046  0.2902  0.0014  0.0002  0.0625  0.03125        0
     1/299   11.8G  0.0500  0.02500  0  0.07500  12  640  0.0044  0.2735  0.0013  0.0002  0.0500  0.02500  0.00625
     2/299   11.8G  0.0400  0.02000  0  0.06000  11  640  0.0048  0.3027  0.0016  0.0002  0.0000  0.00000        0
"""


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_the_losses_are_the_sums_of_their_parts(imported: Import) -> None:
    run = imported(ROWS, "results.txt")
    assert run.source == "YOLO results.txt"
    assert curve(run, "train_loss_raw") == {1: 0.09375, 2: 0.075, 3: 0.06}
    assert curve(run, "val_loss") == pytest.approx({1: 0.09375, 2: 0.08125})
    assert run.manifest is not None
    assert run.manifest.step_unit == "epoch"


def test_a_row_that_is_cut_off_or_broken_is_left_out(imported: Import) -> None:
    broken = "     3/299   11.8G  0.0400  oops  0  0.05  11  640  0  0  0  0  0  0  0\n"
    run = imported(f"{ROWS}{broken}     4/299   11.8G  0.04", "results.txt")
    assert list(curve(run, "train_loss_raw")) == [1, 2, 3]


def test_a_loss_that_is_not_a_number_is_found(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    path.write_text(ROWS.replace("  0.07500 ", "  nan "))
    assert ("NUM001", 2) in {(finding.code, finding.first_step) for finding in triage(path).findings}
