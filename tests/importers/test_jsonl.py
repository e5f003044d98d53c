"""JSON lines of whatever program, Weights & Biases' history among them."""

import json
import math

import pytest

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import import_runs
from ckaudit.importers.tables import jsonrows


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def lines(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_members_under_common_names_are_recognised(imported):
    run = imported(lines({"step": 1, "loss": 2.5, "lr": 0.1, "fun": 3}, {"step": 2, "loss": 2, "val_loss": 3}), "log.txt")
    assert run.source == "JSON lines"
    assert run.rows == [
        {"step": 1, "train_loss_raw": 2.5, "learning_rate": 0.1},
        {"step": 2, "train_loss_raw": 2.0, "val_loss": 3.0},
    ]
    assert noted(run, "left out, because no common name says what they are: fun")


def test_null_and_absent_are_not_recorded_and_nan_is(imported):
    values = ("null", "NaN", '"NaN"', "[1]", "-Infinity")
    text = "".join(f'{{"step":{step},"lr":1,"loss":{value}}}\n' for step, value in enumerate(values, 1))
    losses = curve(imported(text, "log.jsonl"), "train_loss_raw")
    assert list(losses) == [2, 3, 5]
    assert math.isnan(losses[2])
    assert math.isnan(losses[3])
    assert losses[5] == -math.inf


@pytest.mark.parametrize("spelt", ["train/ce/mean", "train.ce.mean"])
def test_members_of_members_go_by_both_names(imported, spelt):
    entries = [{"it": {"n": step}, "train": {"ce": {"mean": 5 - step}}} for step in (1, 2)]
    assert imported(lines(*entries), "log.jsonl", step="it.n", loss=spelt).rows == [
        {"step": 1, "train_loss_raw": 4.0},
        {"step": 2, "train_loss_raw": 3.0},
    ]


def test_a_key_with_dots_of_its_own_is_taken_first(imported):
    text = lines({"step": 1, "a.b": 2, "a": {"b": 3}}, {"step": 2, "a.b": 4, "a": {"b": 5}})
    assert curve(imported(text, "log.jsonl", loss="a.b"), "train_loss_raw") == {1: 2.0, 2: 4.0}


def test_nested_members_under_common_names_are_recognised(imported):
    entries = [{"event": "log", "step": step, "metrics": {"train/loss": 3 - step, "grad/norm/total": 1}} for step in (1, 2)]
    run = imported(lines(*entries), "x")
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.0}
    assert curve(run, "grad_global_norm") == {1: 1.0, 2: 1.0}


def test_a_broken_line_costs_itself_and_a_torn_end_is_said(imported):
    text = '{"step":1,"loss":2}\n{"step":2,"lo\nhello\n\n{"step":3,"loss":1}\n[1]\n{"step":4,"loss":0.5'
    run = imported(text, "log.jsonl")
    assert curve(run, "train_loss_raw") == {1: 2.0, 3: 1.0}
    assert noted(run, "3 lines hold no JSON object and were left out, first line 2")
    assert noted(run, "last line was only half written")


def test_a_whole_last_line_without_its_end_is_read(imported):
    assert curve(imported('{"step":1,"loss":2}\n{"step":2,"loss":1}', "log.jsonl"), "train_loss_raw") == {1: 2.0, 2: 1.0}


def test_a_resume_is_a_new_session(imported):
    run = imported(lines(*({"step": step, "loss": loss} for step, loss in ((1, 3), (2, 2), (3, 1), (2, 2.5), (3, 2)))), "l.jsonl")
    assert [(row["session"], row["step"]) for row in run.rows] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert noted(run, "taken as a resume")


def test_an_evaluation_of_its_own_line_joins_its_step(imported):
    run = imported(lines({"step": 1, "loss": 3}, {"step": 1, "eval/loss": 4}, {"step": 2, "loss": 2}), "log.jsonl")
    assert run.rows == [{"step": 1, "train_loss_raw": 3.0, "val_loss": 4.0}, {"step": 2, "train_loss_raw": 2.0}]


def test_one_list_of_objects_is_read_as_lines_are(imported):
    entries = [{"step": step, "loss": 1 / step} for step in (1, 2, 4)]
    assert curve(imported(json.dumps(entries, indent=1), "log.json"), "train_loss_raw") == {1: 1.0, 2: 0.5, 4: 0.25}
    assert len(imported(json.dumps(entries)[:-5], "log.json").rows) == 2


def test_without_a_step_epochs_or_lines_are_counted(imported):
    run = imported(lines({"epoch": 0, "loss": 3}, {"epoch": 1, "loss": 2}), "log.jsonl")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.0}
    assert noted(run, "epochs are the axis")
    assert noted(imported(lines({"loss": 3}, {"loss": 2}), "log.jsonl"), "entries were numbered from 1")


WANDB = [
    {"_step": 0, "train/global_step": 10, "train/loss": 3.0},
    {"_step": 1, "train/global_step": 10, "eval/loss": 4.0},
    {"_step": 2, "lr": 0.5},
    {"_step": 3, "train/global_step": 20, "train/loss": 2.0},
]


def test_wandb_counts_calls_so_that_a_counter_of_updates_goes_before(imported):
    run = imported(lines(*WANDB), "wandb-history.jsonl")
    assert run.rows == [
        {"step": 10, "train_loss_raw": 3.0, "val_loss": 4.0, "learning_rate": 0.5},
        {"step": 20, "train_loss_raw": 2.0},
    ]
    assert noted(run, "steps are those of train/global_step")


def test_wandb_without_such_a_counter_has_only_its_calls(imported):
    run = imported(lines({"_step": 0, "loss": 3}, {"_step": 5, "loss": 2}), "history.jsonl")
    assert curve(run, "train_loss_raw") == {0: 3.0, 5: 2.0}
    assert noted(run, "_step counts calls of log")


def test_a_mapped_step_decides(imported):
    run = imported(lines(*WANDB), "wandb-history.jsonl", step="_step")
    assert curve(run, "train_loss_raw") == {0: 3.0, 3: 2.0}


def test_a_member_that_is_not_there_gets_a_proposal(imported):
    with pytest.raises(UsageError, match="'train/los'") as raised:
        imported(lines({"step": 1, "train": {"loss": 2}}), "log.jsonl", loss="train/los")
    assert "train/loss" in raised.value.hint


def test_members_without_a_known_name_are_listed(imported):
    with pytest.raises(UnreadableError, match="alpha, beta"):
        imported(lines({"alpha": 1, "beta": 2}), "log.jsonl")


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a": 2}\n', "{}\n{}\n", '{"step": 1}\n{"step": 2}\n', '{\n "loss": 1\n}\n'])
def test_objects_that_are_no_log_are_not_taken(imported, text):
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(text, "some.json")


def test_deep_and_huge_things_are_refused_or_passed_over(imported):
    deep = '{"step":1,"loss":2,"x":' + '{"y":' * 3000 + "1" + "}" * 3001
    run = imported(f'{{"step":1,"loss":2}}\n{deep}\n{{"step":2,"loss":1,"n":{"9" * 400}}}\n', "log.jsonl")
    assert curve(run, "train_loss_raw")[2] == 1.0


def test_names_that_cannot_be_written_are_spelt_out(imported):
    run = imported('{"step":1,"eval/\\ud800/loss":2,"\\u0000":1}\n{"step":2,"loss":1}\n', "log.jsonl")
    assert all(note.isprintable() or note.encode() for note in run.notes)
    assert all(name.encode() for row in run.rows for name in row)


def test_more_series_than_fit_in_memory_are_refused(imported, monkeypatch):
    monkeypatch.setattr(jsonrows, "MAX_CELLS", 10)
    with pytest.raises(UnreadableError, match="more than fit in memory"):
        imported(lines(*({"step": step, "loss": 1, "lr": 1} for step in range(9))), "log.jsonl")


def test_blocks_join_without_a_seam(imported, monkeypatch):
    monkeypatch.setattr(jsonrows, "BLOCK_BYTES", 64)
    entries = [{"step": step, "loss": step / 7, **({"val_loss": 1.5} if step % 10 == 0 else {})} for step in range(1, 200)]
    entries[150]["late"] = {"er": 1}
    run = imported(lines(*entries), "log.jsonl", grad_norm="late/er")
    assert curve(run, "train_loss_raw") == {step: step / 7 for step in range(1, 200)}
    assert list(curve(run, "val_loss")) == list(range(10, 200, 10))
    assert curve(run, "grad_global_norm") == {151: 1.0}


def timed(step, time, data=0.25, **more):
    return {"step": step, "loss": 3.0 - step / 100, "lr": 0.1, "data_time": data, "time": time, **more}


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_the_times_of_a_step_are_read_from_both_kinds_of_table(imported, prefix):
    entries = [
        {"step": entry.pop("step"), **{prefix + key: value for key, value in entry.items()}}
        for entry in (timed(10, 0.5), timed(20, 1.0), timed(30, 0.5))
    ]
    names = list(entries[0])
    text = "\n".join([",".join(names), *(",".join(str(entry[name]) for name in names) for entry in entries)]) + "\n"
    for run, source in ((imported(lines(*entries)), "JSON lines"), (imported(text), "CSV")):
        assert run.source == source
        assert [row["train_loss_raw"] for row in run.rows] == pytest.approx([2.9, 2.8, 2.7])
        assert [(row["step"], row["step_time"], row["dataloader_stall_frac"]) for row in run.rows] == [
            (10, 0.5, 0.5),
            (20, 1.0, 0.25),
            (30, 0.5, 0.5),
        ]
        assert not noted(run, "left out")


@pytest.mark.parametrize(
    "times",
    [
        [(1.0, 0.25), (2.0, 0.25), (3.0, 0.25)],  # a clock
        [(0.5, 0.25), (0.25, 0.5), (0.5, 0.25)],  # not a part of it
    ],
)
def test_times_that_are_none_of_a_step_are_left_out(imported, times):
    entries = [timed(step, whole, data) for step, (whole, data) in enumerate(times, 1)]
    text = "step,loss,data_time,time\n" + "".join("{step},{loss},{data_time},{time}\n".format(**each) for each in entries)
    for run in (imported(lines(*entries)), imported(text)):
        assert not {"step_time", "dataloader_stall_frac"} & {name for row in run.rows for name in row}
        assert noted(run, "left out, because no common name says what they are: data_time, time")


def test_rewards_beside_a_count_of_episodes_are_what_episodes_were_worth(imported):
    lines = [{"episode": episode, "reward": 2.0 * episode, "loss": 0.5} for episode in range(4)]
    run = imported("".join(json.dumps(line) + "\n" for line in lines), "log.jsonl")
    name = "microbench_score/episode_return"
    assert [row[name] for row in run.rows] == [0.0, 2.0, 4.0, 6.0]


def test_epochs_that_begin_anew_begin_another_run(tmp_path):
    entries = [{"epoch": epoch, "train_loss": base / (epoch + 1)} for base in (8.0, 9.0) for epoch in range(12)]
    (tmp_path / "log.txt").write_text(lines(*entries))
    first, second = import_runs(tmp_path / "log.txt")
    assert curve(first, "train_loss_raw")[2] == 4.0
    assert curve(second, "train_loss_raw")[2] == 4.5
