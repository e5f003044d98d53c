"""Tables in long form: rows of several runs, and of training and held-out data, told apart by a column."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from ckaudit.importers import import_runs, import_source
from ckaudit.importers.importer import Imported

STEPS = range(0, 100, 10)
Row = dict[str, float | str]


def loss(run: str, step: int) -> float:
    """Return a loss that tells of which run and step it is."""
    return {"a": 3.0, "b": 5.0, "c": 7.0}[run] - step / 100


def written(path: Path, rows: list[Row]) -> Path:
    """Write rows in the format that the name of the file says."""
    names = list(rows[0])
    if path.suffix == ".csv":
        path.write_text("\n".join([",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def series(run: Imported, name: str) -> dict[int, float]:
    """Return what a run holds under a name, by step."""
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("one_after_another", [True, False])
def test_each_run_of_a_table_is_read_by_itself(tmp_path: Path, ending: str, one_after_another: bool) -> None:
    rows: list[Row] = [{"step": step, "variant": run, "loss": loss(run, step)} for run in "abc" for step in STEPS]
    if not one_after_another:
        rows.sort(key=lambda row: row["step"])
    runs = import_runs(written(tmp_path / f"log.{ending}", rows))
    assert [run.name for run in runs] == ["a", "b", "c"]
    for run in runs:
        assert series(run, "train_loss_raw") == {step: loss(run.name, step) for step in STEPS}
        assert run.manifest.name == run.name


def test_a_run_is_named_by_every_column_that_tells_it_apart(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"model": model, "seed": seed, "optimizer": "adam", "step": step, "loss": loss(model, step) + seed}
        for model in "ab"
        for seed in (0, 1)
        for step in STEPS
    ]
    runs = {run.name: run for run in import_runs(written(tmp_path / "log.csv", rows))}
    assert list(runs) == ["model=a, seed=0", "model=a, seed=1", "model=b, seed=0", "model=b, seed=1"]
    assert series(runs["model=b, seed=1"], "train_loss_raw")[50] == loss("b", 50) + 1


def test_a_run_that_is_known_by_a_number_is_named_with_its_column(tmp_path: Path) -> None:
    rows: list[Row] = [{"seed": seed, "step": step, "loss": 3 - step / 100 + seed} for seed in (0, 1) for step in STEPS]
    assert [run.name for run in import_runs(written(tmp_path / "log.csv", rows))] == ["seed=0", "seed=1"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_training_that_goes_on_under_another_name_is_one_run(tmp_path: Path, ending: str) -> None:
    first: list[Row] = [{"run_id": "first", "step": step, "loss": loss("a", step)} for step in range(0, 100, 10)]
    second: list[Row] = [{"run_id": "second", "step": step, "loss": loss("a", step)} for step in range(80, 200, 10)]
    (run,) = import_runs(written(tmp_path / f"log.{ending}", first + second))
    assert series(run, "train_loss_raw") == {step: loss("a", step) for step in range(0, 200, 10)}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("words", [("train", "val"), ("Training", "Validation"), ("train", "eval")])
def test_rows_of_held_out_data_are_no_training(tmp_path: Path, ending: str, words: tuple[str, str]) -> None:
    train, held_out = words
    rows: list[Row] = []
    for step in STEPS:
        rows.append({"step": step, "phase": train, "loss": loss("a", step), "lr": 1e-3})
        if step % 30 == 0:
            rows.append({"step": step, "phase": held_out, "loss": loss("b", step), "lr": 1e-3})
    run = import_source(written(tmp_path / f"log.{ending}", rows))
    assert series(run, "train_loss_raw") == {step: loss("a", step) for step in STEPS}
    assert series(run, "val_loss") == {step: loss("b", step) for step in STEPS if step % 30 == 0}
    assert len(series(run, "learning_rate")) == len(STEPS)
    assert f"phase tells rows apart: {held_out} are of held-out data" in run.notes


@pytest.mark.parametrize("splits", [{"train": "a", "test": "c"}, {"train": "a", "val": "c", "test": "b"}])
def test_rows_of_a_test_set_are_held_out_where_no_others_are(tmp_path: Path, splits: dict[str, str]) -> None:
    rows: list[Row] = [
        {"epoch": epoch, "split": split, "loss": loss(run, 10 * epoch)} for epoch in range(1, 9) for split, run in splits.items()
    ]
    run = import_source(written(tmp_path / "log.csv", rows))
    assert series(run, "train_loss_raw") == {epoch: loss("a", 10 * epoch) for epoch in range(1, 9)}
    assert series(run, "val_loss") == {epoch: loss("c", 10 * epoch) for epoch in range(1, 9)}
    assert any("test were left out" in note for note in run.notes) == ("val" in splits)


def test_a_split_and_several_runs_are_told_apart_together(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"run": run, "phase": phase, "step": step, "loss": loss(run, step) + (phase == "val")}
        for run in "ab"
        for step in STEPS
        for phase in ("train", "val")
    ]
    runs = import_runs(written(tmp_path / "log.csv", rows))
    assert [run.name for run in runs] == ["a", "b"]
    assert series(runs[1], "train_loss_raw")[20] == loss("b", 20)
    assert series(runs[1], "val_loss")[20] == loss("b", 20) + 1


def test_a_column_of_one_word_tells_nothing(tmp_path: Path) -> None:
    rows: list[Row] = [{"model": "gpt2", "mode": "train", "step": step, "loss": loss("a", step)} for step in STEPS]
    (run,) = import_runs(written(tmp_path / "log.csv", rows))
    assert run.name == ""
    assert series(run, "train_loss_raw") == {step: loss("a", step) for step in STEPS}


@pytest.mark.parametrize("name", ["type", "kind", "event", "log_type", "row_type"])
@pytest.mark.parametrize(
    ("training", "evaluation"), [("train", "eval"), ("train_step", "validation_epoch_end"), ("training", "test")]
)
def test_the_kind_of_a_row_tells_held_out_losses_from_others(imported, name, training, evaluation):
    rows = [{name: "start"}]
    for step in range(1, 7):
        rows += [{name: training, "step": step, "loss": 5 - step / 2}, {name: evaluation, "step": step, "loss": 6 - step / 2}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = f"{name},step,loss\n" + "".join(f"{row[name]},{row['step']},{row['loss']}\n" for row in rows[1:])
    for run in (imported(lines, "log.jsonl"), imported(table)):
        assert [row["train_loss_raw"] for row in run.rows] == [5 - step / 2 for step in range(1, 7)]
        assert [row["val_loss"] for row in run.rows] == [6 - step / 2 for step in range(1, 7)]


def test_kinds_of_rows_without_an_evaluation_tell_nothing_apart(imported):
    lines = "".join(
        json.dumps({"type": kind, "step": n, "loss": 5 - n / 2}) + "\n" for n, kind in enumerate(["train", "spike"] * 3, 1)
    )
    assert [row["train_loss_raw"] for row in imported(lines, "log.jsonl").rows] == [5 - n / 2 for n in range(1, 7)]
