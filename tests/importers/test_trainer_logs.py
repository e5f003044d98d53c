"""Progress logs of detectron2, LLaMA-Factory and ms-swift."""

import json

import pytest

from ckaudit.errors import UnreadableError, UsageError


def noted(run, words):
    return any(words in note for note in run.notes)


def lines(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def detected(iteration, loss, **more):
    return {"data_time": 0.1, "iteration": iteration, "lr": 0.02, "loss_cls": 1, "time": 0.4, "total_loss": loss, **more}


def test_detectron2_counts_iterations_from_0(imported):
    run = imported(
        lines(detected(19, 2.0, eta_seconds=99), detected(39, 1.5), {"bbox/AP": 30.0, "iteration": 39}), "metrics.json"
    )
    assert run.source == "detectron2 metrics.json"
    assert run.rows == [
        {"step": step, "train_loss_raw": loss, "learning_rate": 0.02, "step_time": 0.4, "dataloader_stall_frac": 0.25}
        for step, loss in ((20, 2.0), (40, 1.5))
    ]
    assert noted(run, "iteration N is step N + 1")


def test_detectron2_an_evaluation_after_the_last_update_is_not_one_further(imported):
    entries = [
        detected(19, 2.0),
        {"validation_loss": 3.0, "iteration": 19},
        detected(39, 1.5),
        {"validation_loss": 2.5, "iteration": 40},
    ]
    assert curve(imported(lines(*entries), "metrics.json"), "val_loss") == {20: 3.0, 40: 2.5}


def test_detectron2_appends_after_a_resume(imported):
    run = imported(lines(detected(19, 2.0), detected(39, 1.5), detected(19, 2.1), detected(39, 1.4)), "metrics.json")
    assert [(row["session"], row["step"]) for row in run.rows] == [(0, 20), (0, 40), (1, 20), (1, 40)]


def progress(step, **more):
    return {"current_steps": step, "total_steps": 100, "epoch": 0.1, "percentage": step, "elapsed_time": "0:00:24", **more}


def test_llama_factory_under_both_names_of_the_rate(imported):
    entries = [progress(10, loss=2.0, lr=1e-4), progress(20, loss=1.5, learning_rate=2e-4), progress(20, eval_loss=1.75)]
    run = imported(lines(*entries, progress(100)), "trainer_log.jsonl")
    assert run.source == "LLaMA-Factory trainer_log.jsonl"
    assert curve(run, "train_loss_raw") == {10: 2.0, 20: 1.5}
    assert curve(run, "val_loss") == {20: 1.75}
    assert run.manifest.planned_steps == 100


def test_llama_factory_tokens_that_are_0_were_not_counted(imported):
    run = imported(
        lines(*(progress(step, loss=2.0, total_tokens=0, throughput="0.00") for step in (10, 20))), "trainer_log.jsonl"
    )
    assert "tokens_seen" not in run.rows[0]
    assert noted(run, "tokens were not counted")
    run = imported(lines(progress(10, loss=2.0, total_tokens=4096, vram_allocated=1.5)), "trainer_log.jsonl")
    assert run.rows == [{"step": 10, "train_loss_raw": 2.0, "tokens_seen": 4096.0, "gpu_mem_used": 1.5 * 2**30}]


def test_llama_factory_without_a_value_is_refused(imported):
    with pytest.raises(UnreadableError, match="no value at any step"):
        imported(lines(progress(10), progress(20)), "trainer_log.jsonl")


def swift(place, **more):
    return {
        "epoch": 0.1,
        "global_step/max_steps": place,
        "percentage": "1.00%",
        "elapsed_time": "1m 2s",
        "memory(GiB)": 1.5,
        "train_speed(iter/s)": 0.2,
        **more,
    }


def test_swift_reads_its_step_out_of_words(imported):
    run = imported(
        lines(
            swift("1/500", loss=2.0, grad_norm=1.5, learning_rate=1e-5, token_acc=0.5),
            swift("10/500", loss=1.5),
            swift("10/500", eval_loss=1.75),
            swift("500/500", train_runtime=9.0, train_loss=1.0),
            {"best_metric": 1.75},
        ),
        "logging.jsonl",
    )
    assert run.source == "ms-swift logging.jsonl"
    assert curve(run, "train_loss_raw") == {1: 2.0, 10: 1.5}
    assert curve(run, "val_loss") == {10: 1.75}
    assert curve(run, "gpu_mem_used")[1] == 1.5 * 2**30
    assert run.manifest.planned_steps == 500
    assert noted(run, "token_acc")


@pytest.mark.parametrize("place", ["1", "a/b", "1/2/3", None, 7, "9" * 400 + "/1", "-1/5"])
def test_swift_a_step_that_is_none_costs_its_line(imported, place):
    run = imported(lines(swift("5/9", loss=2.0), swift(place, loss=1.0)), "logging.jsonl")
    assert curve(run, "train_loss_raw") == {5: 2.0}


def test_swift_older_versions_write_the_step_plainly(imported):
    entry = {
        "loss": 1.8,
        "learning_rate": 2e-05,
        "memory(GiB)": 16.0,
        "train_speed(iter/s)": 0.15,
        "epoch": 0.01,
        "global_step": 5,
    }
    assert curve(imported(lines(entry), "logging.jsonl"), "train_loss_raw") == {5: 1.8}


def test_swift_has_no_other_step(imported):
    with pytest.raises(UsageError, match="the step of ms-swift"):
        imported(lines(swift("5/9", loss=2.0)), "logging.jsonl", step="epoch")
