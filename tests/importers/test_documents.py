"""Logs that are one JSON document: Megatron-LM's golden values, Keras' histories."""

import csv
import json
import math
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import import_runs

KERAS = Path(__file__).parents[2] / "fixtures" / "trackers" / "keras"


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def metric(values, start=1, every=5):
    return {"start_step": start, "end_step": 20, "step_interval": every, "values": values}


def test_the_word_nan_never_ran_and_a_bare_nan_was_logged(imported):
    run = imported(
        json.dumps({"lm loss": metric({"1": 10.0, "5": math.nan, "10": "nan", "15": "nan"}), "num-zeros": metric({})}), "g.json"
    )
    assert run.source == "Megatron-LM golden values"
    losses = curve(run, "train_loss_raw")
    assert list(losses) == [1, 5]
    assert math.isnan(losses[5])
    assert noted(run, '2 values are the text "nan"')
    assert noted(run, "was to take 15 steps and none is recorded after 5")
    assert noted(run, "num-zeros")


def test_metrics_with_steps_of_their_own_share_lines(imported):
    golden = {"lm loss": metric({"1": 10.0, "5": 9.0}), "iteration-time": metric({"5": 0.5, "10": 0.25}), "x": metric({"1": 7.0})}
    run = imported(json.dumps(golden), "golden.json", grad_norm="x")
    assert run.rows == [
        {"step": 1, "train_loss_raw": 10.0, "grad_global_norm": 7.0},
        {"step": 5, "train_loss_raw": 9.0, "step_time": 0.5},
        {"step": 10, "step_time": 0.25},
    ]


def test_older_files_list_their_values(imported):
    assert curve(imported(json.dumps({"lm loss": metric([10.0, 9.0, 8.0], start=0)}), "g.json"), "train_loss_raw") == {
        1: 10.0,
        6: 9.0,
        11: 8.0,
    }


@pytest.mark.parametrize("key", ["x", "-5", "1.5", "9" * 30, ""])
def test_a_step_that_is_none_costs_its_value(imported, key):
    assert curve(imported(json.dumps({"lm loss": metric({"1": 10.0, key: 9.0})}), "g.json"), "train_loss_raw") == {1: 10.0}


@pytest.mark.parametrize("end", [-1, -30, 70])
def test_golden_values_that_are_cut_off_are_refused(imported, end):
    text = json.dumps({"lm loss": metric({str(step): 9.5 for step in range(1, 40)})})
    with pytest.raises(UnreadableError, match="cannot be read to its end"):
        imported(text[:end], "golden.json")


HISTORY = {"accuracy": [0.1, 0.2, 0.3], "loss": [3.0, 2.0, 1.0], "lr": [0.1, 0.1, 0.05], "val_loss": [3.5, math.nan, None]}


def test_a_keras_history_has_epochs_for_its_axis(imported):
    run = imported(json.dumps(HISTORY), "history.json")
    assert run.source == "Keras history JSON"
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0, 3: 1.0}
    assert curve(run, "learning_rate") == {1: 0.1, 2: 0.1, 3: 0.05}
    assert list(curve(run, "val_loss")) == [1, 2]
    assert math.isnan(curve(run, "val_loss")[2])
    assert noted(run, "epochs are the axis")


def test_a_keras_history_of_nan_alone_is_a_loss_that_is_no_number(imported):
    run = imported('{"loss": [NaN, NaN, NaN], "val_loss": [NaN, NaN, NaN], "accuracy": [0.1, 0.1, 0.1]}', "history.json")
    for name in ("train_loss_raw", "val_loss"):
        assert list(curve(run, name)) == [1, 2, 3]
        assert all(map(math.isnan, curve(run, name).values()))
    beside = imported('{"loss": [NaN, NaN, NaN], "val_loss": [3.0, 2.0, 1.0]}', "history.json")
    assert curve(beside, "train_loss_raw") == {}


def test_a_whole_keras_history_says_how_many_updates_an_epoch_took(imported):
    document = {
        "validation_data": None,
        "params": {"verbose": 1, "epochs": 5, "steps": 100},
        "epoch": [0, 1, 2],
        "history": HISTORY,
    }
    run = imported(json.dumps(document), "history.json")
    assert curve(run, "train_loss_raw") == {100: 3.0, 200: 2.0, 300: 1.0}
    assert run.manifest.planned_steps == 500


def test_what_keras_itself_wrote():
    (table,), (history,) = (import_runs(KERAS / name) for name in ("training.csv", "history.json"))
    with (KERAS / "training.csv").open(newline="") as stream:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(stream)]
    for name, column in (("train_loss_raw", "loss"), ("val_loss", "val_loss"), ("learning_rate", "learning_rate")):
        assert curve(table, name) == {epoch: row[column] for epoch, row in enumerate(rows, 1)}
        assert curve(history, name) == {8 * epoch: pytest.approx(row[column]) for epoch, row in enumerate(rows, 1)}
    assert (table.source, history.source, history.manifest.planned_steps) == ("CSV", "Keras history JSON", 96)
    assert len(rows) == 12


def test_a_history_by_way_of_a_data_frame(imported):
    text = json.dumps({name: {str(at): value for at, value in enumerate(values)} for name, values in HISTORY.items()})
    assert curve(imported(text, "history.json"), "train_loss_raw") == {1: 3.0, 2: 2.0, 3: 1.0}


def test_columns_with_their_own_steps(imported):
    text = json.dumps({"step": [10, 20, 30], "loss": [3.0, 2.0], "fun": [1, 2, 3]})
    run = imported(text, "columns.json")
    assert curve(run, "train_loss_raw") == {10: 3.0, 20: 2.0}
    assert noted(run, "shorter than others")


def test_a_list_that_was_written_every_few_epochs_is_of_the_ends_of_those(imported):
    losses = [6.0, 5.0, 4.0, 3.0, 2.5, 2.0]
    run = imported(json.dumps({"train_loss": losses, "val_loss": [5.5, 3.5]}), "history.json")
    assert curve(run, "val_loss") == {3: 5.5, 6: 3.5}
    assert noted(run, "taken as values of every 3 epochs: val_loss")
    run = imported(json.dumps({"train_loss": losses, "val_loss": [6.5, 5.5, 3.5]}), "history.json")
    assert curve(run, "val_loss") == {2: 6.5, 4: 5.5, 6: 3.5}
    run = imported(json.dumps({"train_loss": [*losses, 1.5, 1.0], "val_loss": [6.5, 5.5, 3.5]}), "history.json")
    assert curve(run, "val_loss") == {1: 6.5, 4: 5.5, 8: 3.5}
    run = imported(json.dumps({"train_loss": losses, "val_loss": [6.5, 5.5, 4.5, 3.5, 3.4]}), "history.json")
    assert curve(run, "val_loss") == {1: 6.5, 2: 5.5, 3: 4.5, 4: 3.5, 5: 3.4}
    assert noted(run, "shorter than others, taken from the first epoch on: val_loss")


@pytest.mark.parametrize(
    "text", ['{"words": ["a", "b"]}', '{"x": [1, 2], "y": [3, 4]}', '{"loss": 3}', '{"history": {"loss": 3}, "params": {}}']
)
def test_other_documents_are_not_taken(imported, text):
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(text, "some.json")


@pytest.mark.parametrize("end", [-1, 60])
def test_a_history_that_is_cut_off_is_refused(imported, end):
    with pytest.raises(UnreadableError, match="cannot be read to its end"):
        imported(json.dumps(HISTORY)[:end], "history.json")


def test_a_document_that_would_take_hours_to_look_at_is_not(imported):
    with pytest.raises(UnreadableError):
        imported("{" + '"a": 1, ' * 100_000 + '"b": [[[[', "bad.json")
