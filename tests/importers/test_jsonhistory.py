"""Histories inside JSON documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, ImportOptions, import_runs

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


TWO_MODELS = {"Quantum_QVAE": [5.0, 4.0, 3.0, 2.0, 1.0], "Classical_AE": [4.0, 3.0, 2.0, 1.5, 1.25]}


@pytest.mark.parametrize("name", ["training_history.json", "losses.json", "train_loss.json"])
def test_lists_that_nothing_names_are_refused_with_their_options(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(TWO_MODELS))
    with pytest.raises(UnreadableError, match="nothing says that one is a loss: Quantum_QVAE, Classical_AE") as refused:
        import_runs(path)
    assert refused.value.hint == ("Take one for the training loss, as in --map loss=Quantum_QVAE or --map loss=Classical_AE.")
    (run,) = import_runs(path, import_options=ImportOptions(columns={"loss": "Classical_AE"}))
    assert curve(run, "train_loss_raw") == dict(enumerate(TWO_MODELS["Classical_AE"], 1))


def test_lists_of_training_and_validation_are_losses_in_a_file_of_that_name(tmp_path: Path) -> None:
    lists = dict(zip(("train", "valid"), TWO_MODELS.values(), strict=True))
    (tmp_path / "losses.json").write_text(json.dumps(lists))
    (run,) = import_runs(tmp_path / "losses.json")
    assert (curve(run, "train_loss_raw")[2], curve(run, "val_loss")[2]) == (4.0, 3.0)
    (tmp_path / "history.json").write_text(json.dumps(lists))
    with pytest.raises(UnreadableError, match="nothing says that one is a loss"):
        import_runs(tmp_path / "history.json")


def test_the_only_list_is_the_loss_that_the_file_is_named_after(tmp_path: Path) -> None:
    (tmp_path / "val_loss.json").write_text(json.dumps({"name": "run 3", "values": [3.0, 2.5, 2.0, 1.5, 1.0]}))
    (run,) = import_runs(tmp_path / "val_loss.json")
    assert curve(run, "val_loss") == {1: 3.0, 2: 2.5, 3: 2.0, 4: 1.5, 5: 1.0}


def test_lists_in_a_file_of_another_name_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text(json.dumps(TWO_MODELS))
    with pytest.raises(UnreadableError, match="no log that is known"):
        import_runs(tmp_path / "scores.json")


def test_lists_of_losses_that_play_against_each_other_are_a_history(imported):
    lists = {"G_loss": [2.0, 1.5, 1.25, 1.0, 1.0], "D_loss": [0.5, 0.75, 0.5, 0.5, 0.25], "epoch_seconds": [9.0] * 5}
    run = imported(json.dumps(lists), "training_history.json")
    assert [row["train_loss_raw"] for row in run.rows] == [2.5, 2.25, 1.75, 1.5, 1.25]
    assert run.manifest.takes_turns is True
