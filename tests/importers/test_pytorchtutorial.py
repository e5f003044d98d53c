"""Lines of PyTorch's tutorials: time, iteration, share, loss."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_the_iteration_is_the_step(imported: Import) -> None:
    run = imported(
        "0m 24s (- 6m 24s) (5000 6%) 3.5270\n0m 51s (- 6m 2s) (10000 13%) 2.9440\n1m 16s (15000 20%) 2.7407\n", "train.log"
    )
    assert run.source == "lines of PyTorch's tutorials"
    assert curve(run, "train_loss_raw") == {5000: 3.527, 10000: 2.944, 15000: 2.7407}


def test_lines_of_the_other_tutorial_with_a_logger_before_them_are_read(imported: Import) -> None:
    lines = "".join(
        f"INFO: {step} {step // 1000}% (0m {step // 1000}s) {1 / step:.6f} Rovigatti / Italian\n" for step in (5000, 10000, 15000)
    )
    run = imported(lines, "train.log")
    assert curve(run, "train_loss_raw") == {5000: 0.0002, 10000: 0.0001, 15000: 0.000067}


def test_a_loss_that_is_not_a_number_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"1m {place}s ({place}000 {place}%) {'nan' if place > 7 else 3.5 - place / 10}\n" for place in range(1, 10))
    )
    assert ("NUM001", 8000) in {(finding.code, finding.first_step) for finding in triage(path).findings}


def test_two_lines_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("2m 8s (25000 25%) 2.3920\nand 3m 8s (50000 50%) 1.3920\n")
    with pytest.raises(UnreadableError):
        import_runs(path)
