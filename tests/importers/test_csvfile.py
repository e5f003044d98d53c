"""CSV and TSV files: headers, cells, rows, and what an absent value means."""

import math

import pytest

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import import_runs
from ckaudit.importers.tables.table_header import is_table
from ckaudit.run.builder import run_of_table
from tests.loops import for_each


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def test_common_headers_are_recognised_and_named(imported):
    run = imported("iteration,Train/Loss,eval/loss,lr,Grad Norm,fun\n1,2.5,3,1e-3,0.5,7\n2,2.25,,1e-4,0.25,8\n")
    assert run.rows == [
        {"step": 1, "train_loss_raw": 2.5, "val_loss": 3.0, "learning_rate": 1e-3, "grad_global_norm": 0.5},
        {"step": 2, "train_loss_raw": 2.25, "learning_rate": 1e-4, "grad_global_norm": 0.25},
    ]
    assert noted(run, "train_loss_raw from Train/Loss")
    assert noted(run, "left out, because no common name says what they are: fun")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("step,train_loss", "train_loss_raw"),
        ("step,train/lm_loss", "train_loss_raw"),
        ("step,training_loss", "train_loss_raw"),
        ("step,Jtrain", "train_loss_raw"),
        ("step,J_val", "val_loss"),
        ("step,validation/ctc_loss", "val_loss"),
        ("step,Val Loss", "val_loss"),
        ("step,eval/CrossEntropyLoss", "val_loss"),
        ("step,lr-AdamW", "learning_rate"),
        ("step,optim/learning_rate_group0", "learning_rate"),
        ("step,optim/total_grad_norm", "grad_global_norm"),
        ("step,grad_2.0_norm_total", "grad_global_norm"),
        ("step,throughput/total_tokens", "tokens_seen"),
        ("step,tokens/sec", "tokens_per_sec"),
        ("step,brisk-cloud-7 - train/loss", "train_loss_raw"),
        ("step,eval/books/CrossEntropyLoss", "slice_val_loss/books"),
        ("step,slice_val_loss/irregular", "slice_val_loss/irregular"),
        ("step,max_attn_logit", "max_attn_logit"),
    ],
)
def test_one_quantity_under_its_many_names(imported, header, name):
    assert curve(imported(f"{header}\n5,0.5\n"), name) == {5: 0.5}


@pytest.mark.parametrize(
    "step", ["step", "global_step", "iter", "it", "n_iter", "_step", "train/global_step", "trainer/global_step", "Steps"]
)
def test_the_step_under_its_many_names(imported, step):
    assert curve(imported(f"{step},loss\n5,0.5\n"), "train_loss_raw") == {5: 0.5}


@pytest.mark.parametrize("step", ["my step", "opt/iteration", "training steps", "Gradient Updates"])
def test_a_column_that_counts_is_the_step_whatever_stands_before(imported, step):
    run = imported(f"{step},loss\n100,0.5\n200,0.4\n300,0.3\n")
    assert [row["step"] for row in run.rows] == [100, 200, 300]
    assert noted(run, f"step from {step}")


@pytest.mark.parametrize(
    "table",
    [
        "my step,loss\n3,1\n2,2\n1,3\n",
        "a step,b step,loss\n1,2,9\n2,4,8\n",
        "my step,loss\n0.5,1\n1.5,2\n",
        "skipped_steps,loss\n0,4\n0,3\n0,2\n1,2\n1,1\n",
    ],
)
def test_a_column_that_falls_or_is_not_alone_counts_nothing(imported, table):
    run = imported(table)
    assert [row["step"] for row in run.rows] == [*range(1, len(run.rows) + 1)]
    assert noted(run, "no column holds the step")


@pytest.mark.parametrize("header", ["loss__MIN", "train/aux_loss", "epoch", "score", "aloss"])
def test_columns_that_only_look_like_a_loss_are_not_taken(imported, header):
    with pytest.raises(UnreadableError, match="none of its columns"):
        imported(f"step,{header}\n5,0.5\n")


def test_a_mapped_column_wins_over_a_recognised_one(imported):
    run = imported("it,loss,ce\n1,9,2\n2,9,1\n", loss="ce", step="it")
    assert run.rows == [{"step": 1, "train_loss_raw": 2.0}, {"step": 2, "train_loss_raw": 1.0}]


def test_a_mapped_column_is_not_taken_a_second_time(imported):
    assert imported("step,loss\n1,2\n", val_loss="loss").rows == [{"step": 1, "val_loss": 2.0}]


def test_full_names_and_labels_can_be_mapped(imported):
    run = imported("step,a,b\n1,2,3\n", **{"slice_val_loss/rare": "a", "mfu": "b"})
    assert run.rows == [{"step": 1, "slice_val_loss/rare": 2.0, "mfu": 3.0}]
    assert run.manifest.slices == ["rare"]


def test_a_name_outside_the_catalogue_gets_a_proposal(imported):
    with pytest.raises(UsageError, match="no name 'val_los'") as raised:
        imported("step,loss\n1,2\n", val_los="loss")
    assert "val_loss" in raised.value.hint


def test_a_column_that_is_not_there_gets_a_proposal(imported):
    with pytest.raises(UsageError, match="'train/los'") as raised:
        imported("step,train/loss\n1,2\n", loss="train/los")
    assert "train/loss" in raised.value.hint


def test_the_fuller_of_two_columns_is_taken_and_the_other_named(imported):
    run = imported("step,loss,train_loss\n1,,5\n2,2,6\n3,,7\n")
    assert curve(run, "train_loss_raw") == {1: 5.0, 2: 6.0, 3: 7.0}
    assert noted(run, "could also be loss")


def test_an_empty_cell_is_not_recorded_and_the_word_nan_is_recorded(imported):
    run = imported("step,loss,lr\n1,2,0.1\n2,,0.1\n3,nan,0.1\n4,inf,\n5,None,N/A\n6,1,0.1\n")
    losses = curve(run, "train_loss_raw")
    assert list(losses) == [1, 3, 4, 6]
    assert math.isnan(losses[3])
    assert losses[4] == math.inf
    assert list(curve(run, "learning_rate")) == [1, 2, 3, 6]


def test_nan_between_rare_evaluations_says_only_that_there_was_none(imported):
    rows = "".join(f"{step},2,{1.5 if step % 10 == 0 else 'nan'}\n" for step in range(1, 46))
    run = imported(f"step,loss,val_loss\n{rows}")
    assert curve(run, "val_loss") == {10: 1.5, 20: 1.5, 30: 1.5, 40: 1.5}
    assert noted(run, "nan in val_loss")


def test_nan_from_some_step_to_the_end_is_a_run_that_blew_up(imported):
    rows = "".join(f"{step},{2 if step < 10 else 'NaN'}\n" for step in range(1, 46))
    losses = curve(imported(f"step,loss\n{rows}"), "train_loss_raw")
    assert len(losses) == 45
    assert [step for step, loss in losses.items() if math.isnan(loss)] == list(range(10, 46))


def test_float_strings_are_steps_and_broken_steps_lose_their_row(imported):
    run = imported("step,loss\n1000.0,2\n2e3,1\nx,5\n-1,5\n2.5,5\nnan,5\n1e30,5\n,5\n")
    assert curve(run, "train_loss_raw") == {1000: 2.0, 2000: 1.0}
    assert noted(run, "6 rows have no whole step")
    assert noted(run, "first line 4")


def test_without_a_step_rows_are_numbered_and_that_is_said(imported):
    run = imported("loss,lr\n3,1\n2,1\n")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0}
    assert noted(run, "rows were numbered from 1")


def test_without_a_step_tokens_over_tokens_per_update_are_the_step(imported):
    run = imported("total_tokens,batch_size_in_tokens,loss\n2048,1024,3\n5120,1024,2\n")
    assert curve(run, "train_loss_raw") == {2: 3.0, 5: 2.0}
    assert noted(run, "tokens seen over tokens per update")


def test_tokens_that_do_not_divide_give_no_step(imported):
    assert noted(imported("total_tokens,batch_size_in_tokens,loss\n2048,1000,3\n"), "rows were numbered")


@for_each("mark", [",", "\t", ";"])
@for_each("end", ["\n", "\r\n", "\r"])
@for_each("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_delimiters_line_ends_and_byte_order_marks(imported, mark, end, encoding):
    text = end.join([mark.join(row) for row in (["step", '"train/loss"'], ["1", "2.5"], ["2", "2.25"], [""])])
    assert curve(imported(text.encode(encoding)), "train_loss_raw") == {1: 2.5, 2: 2.25}


def test_a_decimal_comma_is_read_where_it_cannot_be_a_delimiter(imported):
    run = imported("step;loss;lr\n1;2,5;1,5e-4\n2;2;0.25\n")
    assert run.rows == [
        {"step": 1, "train_loss_raw": 2.5, "learning_rate": 1.5e-4},
        {"step": 2, "train_loss_raw": 2.0, "learning_rate": 0.25},
    ]
    assert noted(run, "decimal comma")


def test_quoted_headers_may_hold_the_delimiter(imported):
    run = imported('"global_step","a, b","train/loss"\n1,x,2\n')
    assert run.rows == [{"step": 1, "train_loss_raw": 2.0}]


def test_short_and_long_rows_keep_what_they_have(imported):
    run = imported("step,loss,lr\n1,2\n2,2,0.5,9,9\n3,1,0.5\n")
    assert run.rows == [
        {"step": 1, "train_loss_raw": 2.0},
        {"step": 2, "train_loss_raw": 2.0, "learning_rate": 0.5},
        {"step": 3, "train_loss_raw": 1.0, "learning_rate": 0.5},
    ]
    assert noted(run, "2 rows are not as wide as the header, first line 2 with 2 of 3 cells")


def test_a_torn_last_row_is_left_out(imported):
    run = imported("step,loss,lr\n1,2.125,0.5\n2,2.0")
    assert run.rows == [{"step": 1, "train_loss_raw": 2.125, "learning_rate": 0.5}]
    assert noted(run, "no line end")


def test_cells_that_are_no_numbers_are_counted_with_their_line(imported):
    run = imported("step,loss\n1,2\n\n2,oops\n3,1\n")
    assert curve(run, "train_loss_raw") == {1: 2.0, 3: 1.0}
    assert noted(run, "1 cell of loss is no number and counts as not recorded, first 'oops' in line 4")


def test_a_cell_without_end_costs_its_record_and_no_more_memory(imported):
    rows = "".join(f"{step},2\n" for step in range(50_000))
    run = imported(f'step,loss\n1,2\n2,"{"9" * 200_000}\n{rows}60000,1\n')
    assert curve(run, "train_loss_raw")[60000] == 1.0
    assert noted(run, "cell without end")


def test_a_replay_is_a_new_session_and_holds_from_its_first_step(imported):
    run = imported("step,loss\n1,3.0\n2,2.0\n3,1.0\n2,2.5\n3,2.25\n")
    assert run.rows == [
        {"step": 1, "session": 0, "train_loss_raw": 3.0},
        {"step": 2, "session": 0, "train_loss_raw": 2.0},
        {"step": 3, "session": 0, "train_loss_raw": 1.0},
        {"step": 2, "session": 1, "train_loss_raw": 2.5},
        {"step": 3, "session": 1, "train_loss_raw": 2.25},
    ]
    assert noted(run, "steps go back once, first from 3 to 2")


def test_what_a_replay_replaced_does_not_count_in_the_run(imported):
    run = imported("step,loss\n1,3.0\n2,2.0\n3,1.0\n5,0.5\n2,2.5\n3,2.25\n")
    loss = run_of_table("log", run.table).scalar("train_loss_raw")
    assert loss.steps.tolist() == [1, 2, 3]
    assert loss.values[:, 0].tolist() == [3.0, 2.5, 2.25]


def test_an_exact_replay_changes_nothing(imported):
    run = imported("step,loss\n1,3\n2,nan\n3,1\n2,nan\n3,1\n")
    assert [row["step"] for row in run.rows] == [1, 2, 3]
    assert "session" not in run.rows[0]


def test_a_late_evaluation_is_sorted_in(imported):
    run = imported("step,loss,val_loss\n1,3,\n2,2,\n1,,4\n")
    assert run.rows == [{"step": 1, "train_loss_raw": 3.0, "val_loss": 4.0}, {"step": 2, "train_loss_raw": 2.0}]


def test_of_two_values_at_one_step_the_later_holds(imported):
    run = imported("step,loss\n1,3\n1,2\n2,1\n")
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.0}
    assert noted(run, "1 value stands twice at one step")


def test_a_clock_is_taken_only_if_it_tells_unix_time(imported):
    assert imported("step,loss,_timestamp\n1,2,1700000000.5\n").rows[0]["time"] == 1700000000.5
    assert "time" not in imported("step,loss,_timestamp\n1,2,12.5\n").rows[0]


@pytest.mark.parametrize("text", ["step,loss\n", "step,loss", "step,loss\n\n\n"])
def test_a_header_alone_is_refused(imported, text):
    with pytest.raises(UnreadableError, match="no rows"):
        imported(text)


def test_a_header_without_end_is_refused(imported):
    with pytest.raises(UnreadableError, match="header line"):
        imported(f'step,loss,"{"x" * 200_000}\n1,2,3\n')


@pytest.mark.parametrize("text", ["step,loss\n1,\n2,\n", "step,loss\nx,1\n"])
def test_rows_without_a_value_are_refused(imported, text):
    with pytest.raises(UnreadableError, match="no value at any step"):
        imported(text)


def test_a_table_without_a_known_name_lists_its_columns(imported):
    with pytest.raises(UnreadableError, match="Wall time, Step, Value") as raised:
        imported("Wall time,Step,Value\n1,1,2\n")
    assert "--map" in raised.value.hint


def test_a_column_known_to_be_empty_is_said(imported):
    assert noted(imported("step,loss,val_loss\n1,2,\n"), "no value was recorded in val_loss")


def test_names_of_composer_are_known(imported):
    header = (
        "time/batch,loss/train/total,metrics/eval/LanguageCrossEntropy,lr-DecoupledAdamW/group0,l2_norm/grad/global,time/token"
    )
    expected = {"train_loss_raw": 3.0, "val_loss": 3.5, "learning_rate": 0.01, "grad_global_norm": 1.5, "tokens_seen": 4096.0}
    assert imported(f"{header}\n7,3,3.5,0.01,1.5,4096\n").rows == [{"step": 7, **expected}]


def test_what_is_a_table_for_certain():
    """Such a file is not searched for the lines of text logs."""
    assert is_table(b"step,loss\n1,2\n2,1.5\n3,")
    assert not is_table(b"step 1, loss 2.5\nstep 2, loss 2.25\n")
    assert not is_table(b"step:1,loss:2.5\nstep:2,loss:2.25\n")
    assert not is_table(b"epoch 1 begins\n1,2\n")


def test_stable_baselines_table_goes_by_the_steps_of_its_environment(imported):
    header = "rollout/ep_rew_mean,time/fps,time/iterations,time/total_timesteps,train/loss,train/n_updates"
    rows = [f"{20 + n},800,{n},{2048 * n},{'' if n == 1 else 9.5},{'' if n == 1 else 10 * (n - 1)}" for n in range(1, 6)]
    run = imported("\n".join([header, *rows, ""]), "progress.csv")
    assert [row["step"] for row in run.rows] == [2048 * n for n in range(1, 6)]
    assert [row["microbench_score/rollout_ep_rew_mean"] for row in run.rows] == [20.0 + n for n in range(1, 6)]
    assert any("step from time/total_timesteps" in note for note in run.notes)
    assert "train_loss_raw" not in run.table.names


def test_no_loss_of_a_policy_is_offered_beside_its_returns(imported):
    run = imported(
        "Epoch\tAverageEpRet\tLossPi\tLossV\tEntropy\n0\t-140.9\t-0.008\t316.1\t1.4\n1\t37.3\t-0.004\t338.1\t1.4\n", "p.txt"
    )
    assert [row["microbench_score/average_ep_ret"] for row in run.rows] == [-140.9, 37.3]
    assert not any("--map" in note for note in run.notes)


@pytest.mark.parametrize(
    ("head", "rows"),
    [
        ("# schedule=cosine,total=20000\n# by hand\nstep,loss,lr", 3),
        ("# step,loss,lr", 3),  # as numpy writes a header
        ("\n#seed 1\n\nstep;loss;lr", 2000),
    ],
)
def test_comments_before_the_header_are_passed_over(imported, head, rows):
    mark = ";" if ";" in head else ","
    text = head + "\n" + "".join(f"{n}{mark}{9 - n / 1000}{mark}0.1\n" for n in range(1, rows + 1))
    run = imported(text, "metrics.csv")
    assert curve(run, "train_loss_raw") == {n: 9 - n / 1000 for n in range(1, rows + 1)}


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("Epoche;Trainingsverlust;Validierungsverlust;Lernrate", "1;2,5;2,6;0,1"),
        ("époque;perte entraînement;perte validation;taux d'apprentissage", "1;2,5;2,6;0,1"),
        ("轮次;训练损失;验证损失;学习率", "1;2.5;2.6;0.1"),
    ],
)
def test_names_in_other_languages_are_known(imported, header, cells):
    run = imported(f"{header}\n{cells}\n{cells.replace('1', '2', 1)}\n")
    assert run.rows[0] == {"step": 1, "train_loss_raw": 2.5, "val_loss": 2.6, "learning_rate": 0.1}
    assert run.manifest.step_unit == "epoch"


SPLIT = ",ep,train,valid,total\n" + "".join(f"{n},{n + 1},{3 / (n + 1)},{4 / (n + 1)},{7 / (n + 1)}\n" for n in range(6))


def test_columns_named_after_data_are_losses_where_the_file_is_named_after_losses(imported):
    run = imported(SPLIT, "losses.csv")
    assert run.rows[1] == {"step": 2, "train_loss_raw": 1.5, "val_loss": 2.0}
    assert run.manifest.step_unit == "epoch"
    assert noted(run, "the file's name says that train, valid are losses")
    run = imported(SPLIT.replace("valid", "test").replace("total", "val"), "loss_history.csv")
    assert run.rows[1] == {"step": 2, "train_loss_raw": 1.5, "val_loss": 3.5}
    assert imported(SPLIT, "losses.csv", loss="total").rows[1] == {"step": 2, "train_loss_raw": 3.5}
    assert imported(SPLIT, "losses.csv", step="ep").manifest.step_unit != "epoch"


@pytest.mark.parametrize("name", ["accuracy.csv", "log.csv", "loss_weights.csv"])
def test_columns_named_after_data_are_anything_elsewhere(imported, name):
    with pytest.raises(UnreadableError, match="none of its columns has a name that is known"):
        imported(SPLIT, name)


def test_an_ep_beside_rewards_is_no_epoch(imported):
    rows = "".join(f"{n},{3 / n},{n}\n" for n in range(1, 6))
    assert imported(f"ep,loss,acc\n{rows}").manifest.step_unit == "epoch"
    assert imported(f"ep,loss,reward\n{rows}").manifest.step_unit == "entry"


def test_numbered_losses_are_named_in_the_hint(imported):
    with pytest.raises(UnreadableError) as refused:
        imported(",loss0,loss1,acc0\n0,1.5,1.6,0.5\n1,1.4,1.5,0.6\n", "losses.csv")
    assert refused.value.hint == (
        "--map loss=loss0 would take loss0 for the training loss; nothing tells which of loss0, loss1 is that"
    )


def test_trainings_one_after_the_other_are_runs(tmp_path):
    falls = [f"{epoch},{2 / epoch:.4f}" for epoch in range(1, 16)]
    rises = [f"{epoch},{2 + epoch / 10:.4f}" for epoch in range(1, 13)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["epoch,loss", *falls, "1,2.5", "2,2.4", *rises]))
    runs = import_runs(path)
    assert [(run.name, len(run.table.steps)) for run in runs] == [("run 1", 15), ("run 2", 12)]  # a start of two rows is none
    path.write_text("\n".join(["epoch,loss", *falls, *falls]))
    assert len(import_runs(path)) == 1  # a log that stands there twice
    path.write_text(
        "\n".join(["epoch,step,loss", *(f"{epoch},{step},{3 - epoch}.{step}" for epoch in (0, 1) for step in range(12))])
    )
    assert len(import_runs(path)) == 1  # steps that begin anew in each epoch


@pytest.mark.parametrize(
    "text",
    [
        "Wall time,Step,Value\n1528975454,18,10.5\n1528976139,42,9.5\n",
        '"Run","metric","step","value"\n"a","loss","18","10.5"\n"a","loss","42","9.5"\n',
    ],
)
def test_a_value_in_a_file_that_is_named_after_a_loss_is_that_loss(imported, text):
    assert curve(imported(text, "val_loss.csv"), "val_loss") == {18: 10.5, 42: 9.5}


def test_steps_that_begin_anew_while_the_loss_goes_on_are_counted_through(tmp_path):
    path = tmp_path / "log.csv"
    rows = [(step, 4.0 / (1 + step / 10)) for step in range(10, 110, 10)] + [(10, 0.35), (20, 0.34), (30, 0.33)]
    path.write_text("step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in rows))
    (run,) = import_runs(path)
    steps = [row["step"] for row in run.rows]
    assert steps == [*range(10, 140, 10)]
    assert [row["train_loss_raw"] for row in run.rows] == [loss for _, loss in rows]
    assert any("begin anew once while the loss goes on" in note for note in run.notes)


def test_a_resume_repeats_steps_and_is_not_counted_through(tmp_path):
    path = tmp_path / "log.csv"
    rows = [(step, 4.0 / step) for step in range(1, 21)] + [(step, 4.1 / step) for step in range(15, 31)]
    path.write_text("step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in rows))
    (run,) = import_runs(path)
    assert max(row["step"] for row in run.rows) == 30
    assert any("taken as a resume" in note for note in run.notes)


def test_a_total_that_stands_behind_its_noun_is_known(tmp_path):
    path = tmp_path / "historial.csv"
    path.write_text("Episodio,RecompensaTotal,Pasos\n" + "".join(f"{place},{place / 2},9\n" for place in range(1, 21)))
    (run,) = import_runs(path)
    assert [row["microbench_score/total_reward"] for row in run.rows] == [place / 2 for place in range(1, 21)]
