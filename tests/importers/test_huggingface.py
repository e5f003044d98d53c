"""Hugging Face trainer_state.json."""

import json
import math
import sys

import pytest

from ckaudit.errors import UnreadableError, UsageError


def noted(run, words):
    return any(words in note for note in run.notes)


def test_training_and_evaluation_entries_of_one_step_become_one_line(trained):
    run = trained(
        {"epoch": 0.5, "grad_norm": 1.5, "learning_rate": 1e-4, "loss": 2.25, "step": 10},
        {"epoch": 0.5, "eval_loss": 2.5, "eval_runtime": 3.0, "step": 10},
        {"loss": 2.0, "step": 20},
    )
    assert run.rows == [
        {"step": 10, "grad_global_norm": 1.5, "learning_rate": 1e-4, "train_loss_raw": 2.25, "val_loss": 2.5},
        {"step": 20, "train_loss_raw": 2.0},
    ]


def test_the_summary_at_the_end_is_no_point_of_the_loss(trained):
    run = trained(
        {"loss": 2.0, "step": 10}, {"step": 10, "train_loss": 3.0, "loss": 9.0, "train_runtime": 12.0, "total_flos": 1e9}
    )
    assert run.rows == [{"step": 10, "train_loss_raw": 2.0}]
    assert noted(run, "summary")


def test_entries_without_a_step_are_left_out_and_counted(trained):
    run = trained({"loss": 2.0, "step": 10}, {"predict_loss": 1.0}, {"predict_runtime": 1.0})
    assert run.rows == [{"step": 10, "train_loss_raw": 2.0}]
    assert noted(run, "2 entries without a step")


def test_several_evaluation_sets_become_slices(trained):
    run = trained(
        {"eval_books_loss": 2.5, "eval_books_runtime": 1.0, "step": 10},
        {"eval_code/py_loss": 1.5, "eval_code/py_runtime": 1.0, "step": 10},
    )
    assert run.rows == [{"step": 10, "slice_val_loss/books": 2.5, "slice_val_loss/code/py": 1.5}]
    assert run.manifest.slices == ["books", "code/py"]


def test_a_set_named_all_is_the_whole(trained):
    run = trained({"eval_all_loss": 2.0, "step": 10}, {"eval_books_loss": 2.5, "step": 10})
    assert run.rows == [{"step": 10, "val_loss": 2.0, "slice_val_loss/books": 2.5}]


def test_a_part_of_the_evaluation_loss_is_not_taken_for_a_set(trained):
    run = trained({"eval_loss": 3.0, "eval_kl_loss": 0.5, "step": 10})
    assert run.rows == [{"step": 10, "val_loss": 3.0}]


def test_evaluations_without_a_loss_are_counted(trained):
    run = trained({"loss": 2.0, "step": 10}, {"eval_wer": 31.0, "eval_runtime": 4.0, "step": 10}, {"eval_wer": 30.0, "step": 20})
    assert run.rows == [{"step": 10, "train_loss_raw": 2.0}]
    assert noted(run, "2 evaluations recorded no loss")
    assert noted(run, "eval_wer")


def test_bare_nan_and_words_are_recorded_as_nan(imported):
    entries = '{"loss": NaN, "grad_norm": "nan", "step": 1}, {"loss": Infinity, "grad_norm": "0.5", "step": 2}'
    text = f'{{"best_metric": null, "log_history": [{entries}]}}'
    first, second = imported(text, "state.json").rows
    assert math.isnan(first["train_loss_raw"])
    assert math.isnan(first["grad_global_norm"])
    assert (second["train_loss_raw"], second["grad_global_norm"]) == (math.inf, 0.5)


def test_null_is_not_recorded(trained):
    assert trained({"loss": None, "grad_norm": True, "learning_rate": 0.1, "step": 1}).rows == [{"step": 1, "learning_rate": 0.1}]


def test_a_zero_loss_beside_a_nan_gradient_is_kept_and_said_to_hide_a_nan(trained):
    run = trained({"loss": 2.0, "grad_norm": 1.0, "step": 10}, {"loss": 0.0, "grad_norm": float("nan"), "step": 20})
    assert run.rows[1]["train_loss_raw"] == 0.0
    assert noted(run, "first at step 20")
    assert noted(run, "logging_nan_inf_filter")


def test_a_zero_loss_alone_hides_nothing(trained):
    assert not noted(trained({"loss": 0.0, "grad_norm": 0.1, "step": 10}), "logging_nan_inf_filter")


def test_the_manifest_holds_the_plan_and_the_settings(trained):
    run = trained(
        {"loss": 2.0, "step": 10}, max_steps=500, num_train_epochs=3, train_batch_size=8, logging_steps=10, eval_steps=None
    )
    assert run.manifest.planned_steps == 500
    assert run.manifest.config == {"num_train_epochs": 3, "train_batch_size": 8, "logging_steps": 10}
    assert run.manifest.source == run.source == "Hugging Face trainer_state.json"


def test_an_unlimited_number_of_epochs_is_no_setting(trained):
    run = trained({"loss": 2.0, "step": 10}, num_train_epochs=sys.maxsize, max_steps=-1)
    assert not run.manifest.config
    assert not run.manifest.planned_steps


def test_a_state_before_the_planned_end_is_said_to_be_one(trained):
    assert noted(trained({"loss": 2.0, "step": 10}, global_step=10, max_steps=500), "step 10 of 500 planned")
    assert not noted(trained({"loss": 2.0, "step": 10}, global_step=500, max_steps=500), "planned")


def test_a_second_evaluation_of_a_step_holds(trained):
    run = trained({"eval_loss": 3.0, "step": 10}, {"eval_loss": 2.0, "step": 10})
    assert run.rows == [{"step": 10, "val_loss": 2.0}]
    assert noted(run, "1 value stands twice")


def test_a_member_can_be_named_by_the_user(trained):
    run = trained({"policy_loss": 0.5, "loss": 2.0, "it": 7, "step": 10}, columns={"loss": "policy_loss", "step": "it"})
    assert run.rows == [{"step": 7, "train_loss_raw": 0.5}]
    with pytest.raises(UsageError, match="policy_los"):
        trained({"policy_loss": 0.5, "step": 10}, columns={"loss": "policy_los"})


def test_a_half_written_state_says_where_it_ends(imported):
    whole = json.dumps({"best_metric": None, "log_history": [{"loss": 2.0, "step": 10}] * 50}, indent=2)
    with pytest.raises(UnreadableError, match=r"ends in the middle.*line \d+, column \d+"):
        imported(whole[: len(whole) // 2], "trainer_state.json")


@pytest.mark.parametrize("history", [None, {}, [], [[]], [{"step": 1}], [{"loss": 1.0}], [{"loss": 1.0, "step": -1}]])
def test_a_state_without_a_single_value_is_refused(imported, history):
    with pytest.raises(UnreadableError, match="logged no loss"):
        imported(json.dumps({"best_metric": 1, "log_history": history}), "trainer_state.json")


def test_numbers_beyond_a_float_are_infinite_and_no_steps(imported):
    huge = "9" * 400
    run = imported(f'{{"log_history": [{{"loss": {huge}, "step": 3}}, {{"loss": 1, "step": {huge}}}]}}', "state.json")
    assert run.rows == [{"step": 3, "train_loss_raw": math.inf}]


def test_names_that_no_file_could_hold_are_made_writable(trained):
    run = trained({"eval_\ud800_loss": 1.0, "\udc00": 2, "step": 1})
    assert run.rows == [{"step": 1, "slice_val_loss/\\ud800": 1.0}]
    assert all(note.encode() for note in run.notes)
