"""A folder of metrics, a file for each epoch, as AllenNLP leaves it."""

import json
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import import_source


def write(folder: Path, train: list[float], val: list[float]) -> None:
    folder.mkdir(exist_ok=True)
    for epoch, (one, other) in enumerate(zip(train, val, strict=True)):
        values = {"best_epoch": 0, "peak_worker_0_memory_MB": 2729.5, "training_duration": "0:05:11.20112", "epoch": epoch}
        values |= {"training_accuracy": 0.9, "training_loss": one, "validation_accuracy": 0.8, "validation_loss": other}
        (folder / f"metrics_epoch_{epoch}.json").write_text(json.dumps({**values, "best_validation_loss": 0.1}))


def test_each_file_is_an_epoch_in_the_order_of_numbers(tmp_path: Path) -> None:
    write(tmp_path / "out", [1 / epoch for epoch in range(1, 13)], [2 / epoch for epoch in range(1, 13)])
    run = import_source(tmp_path / "out")
    assert run.source == run.manifest.source == "AllenNLP metrics"
    assert run.manifest.step_unit == "epoch"
    assert [row["train_loss_raw"] for row in run.rows] == [1 / epoch for epoch in range(1, 13)]
    assert [row["val_loss"] for row in run.rows] == [2 / epoch for epoch in range(1, 13)]
    assert run.rows[0]["microbench_score/validation_accuracy"] == 0.8
    assert any("left out" in note and "peak_worker_0_memory_MB" in note for note in run.notes)
    assert not any("best_" in note for note in run.notes)


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, [3.0, 2.0, 1.0], [3.0, 2.5, 2.0])
    (tmp_path / "metrics_epoch_1.json").write_text('{"training_loss": 1')
    (tmp_path / "metrics_epoch_9.json").write_text("[1]")
    assert [row["step"] for row in import_source(tmp_path).rows] == [1, 3]
    for path in tmp_path.iterdir():
        path.write_text("[]")
    with pytest.raises(UnreadableError):
        import_source(tmp_path)


def test_a_model_that_memorises_is_found(tmp_path: Path) -> None:
    write(tmp_path, [0.8**epoch for epoch in range(20)], [max(0.8**epoch, 0.4) + 0.1 * max(epoch - 5, 0) for epoch in range(20)])
    assert "LOSS002" in {finding.code for finding in triage(tmp_path).findings}
