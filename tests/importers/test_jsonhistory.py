"""Histories inside JSON documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

TRAIN, VAL = [2.0, 1.0, float("nan"), 0.5], [3.0, 2.0, 1.0, 0.75]
ENTRIES = [{"epoch": n, "train_loss": train, "val_loss": val} for n, (train, val) in enumerate(zip(TRAIN, VAL, strict=True), 1)]


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


@pytest.mark.parametrize(
    "document",
    [
        {"config": {"lr": 0.1}, "results": {"history": ENTRIES}},
        {"args": {}, "log": {"train_losses": TRAIN, "val_losses": VAL, "names": ["a"]}},
        {str(entry["epoch"]): {key: entry[key] for key in ("train_loss", "val_loss")} for entry in ENTRIES},
        {"best": [{"val_loss": 0.7}, {"val_loss": 0.8}], "all": ENTRIES},  # the longest is the history
    ],
)
def test_it_is_found_wherever_it_stands(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    (run,) = import_runs(path)
    assert curve(run, "val_loss") == dict(enumerate(VAL, 1))
    train = curve(run, "train_loss_raw")
    assert {step: value for step, value in train.items() if value == value} == {1: 2.0, 2: 1.0, 4: 0.5}
    assert train[3] != train[3]


@pytest.mark.parametrize(
    "document",
    [
        {"schema_version": "ck.report.v1", "history": ENTRIES},
        {"loss": 0.5, "val_loss": 0.6, "epochs": 10},
        {"loss": {"name": "cross entropy", "weights": [1.0, 2.0]}},
        {"a": {"b": {"c": {"d": {"e": {"f": ENTRIES}}}}}},
    ],
)
def test_results_and_settings_are_no_history(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableError):
        import_runs(path)
