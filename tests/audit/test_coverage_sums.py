"""What coverage says of what it cannot judge is true: each check counts to the lines that bring its numbers."""

import json
import re
from pathlib import Path

import pytest

from ckaudit.audit.coverage.recorded import coverage_of
from ckaudit.audit.coverage.remedies import best_metric
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.summaries import parse_needs
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import actions
from ckaudit.probes.memorization import MIN_TOKENS
from ckaudit.reports import render
from ckaudit.reports.view import PLAIN
from ckaudit.run.read import read_run
from ckaudit.run.run import Run
from tests.audit.judged import coverage, triage
from tests.audit.test_promises import logged, screen_of
from tests.audit.trained import trained

FIXTURES = Path(__file__).parents[2] / "fixtures"
REAL, RUNS = FIXTURES / "real", FIXTURES / "runs"
PETEISH = REAL / "olmo" / "peteish1.csv"
CHECKPOINT = RUNS / "nan_batch" / "analysis_checkpoint_step_00000050.json"
LOGS = [
    REAL / "pythia" / "160m-6.first5000.csv",
    PETEISH,
    next((REAL / "multipowerlaw" / "csv_100").glob("cosine_72000*")),
    REAL / "hf_trainer" / "mistral_lora_4ep" / "trainer_state.json",
    REAL / "hf_trainer" / "whisper_small_hi_overfit" / "trainer_state.json",
]


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_no_check_is_left_of_which_a_line_brings_its_numbers(log):
    found = coverage(log)
    assert not [each.name for each in found.waiting if not each.places]
    first = {each.name for each in found.waiting if each.place == 1}
    asked = {"skipped_updates", "repeated_batch", "token_drift", "initial_loss_off", "dropout_rate_high", "schedule_off_plan"}
    assert asked & {each.name for each in found.waiting} <= first
    assert "Not judged, and no line above" not in screen_of(found)


@pytest.mark.parametrize("name", ["healthy", "nan_batch", "lr_too_high", "overfit_tiny", "float16_overflow"])
def test_recording_again_tells_how_much_is_dropped(name):
    found = coverage(RUNS / name)
    (again,) = [each for each in found.remedies if not each.lines]
    assert "dropout_rate_high" in again.waiting
    assert "dropout_rate_high" in screen_of(found, verbose=True).partition("Nothing to write: record again")[0]
    assert "Not judged, and no line above" not in screen_of(found)


def test_what_no_line_brings_is_told_in_the_words_of_the_check():
    found = coverage_of(logged(["train_loss_raw", "learning_rate"], source="ckaudit writer 0.1.0"))
    assert "dropout_rate_high: run.json does not say how much the modules of the model drop" in screen_of(found)
    assert "needs run.json does not" not in screen_of(found)


def test_one_or_the_other_two_are_two_needs():
    assert parse_needs("needs a, or b and c") == (("a", "b"), ("a", "c"))
    run = logged(["train_loss_raw", "step_time"], source="CSV")
    found = coverage_of(run)
    (waiting,) = [each for each in found.waiting if each.name == "skipped_updates"]
    assert waiting.needs == ("steps_seen", "val_loss", "train_loss_raw")
    assert waiting.place == 1
    assert waiting.detail == "needs steps_seen, or val_loss and train_loss_raw"


def test_tokens_that_no_batch_tells_are_a_line_to_write(tmp_path):
    torch = pytest.importorskip("torch")
    assert torch
    # Two forward passes make a step, so that its batch is not all of it.
    head = 'recorder = Recorder(model, "run/", optimizer=optimizer, vocabulary=11, warmup_steps=0, planned_steps=60'
    head = f"from ckaudit import Recorder\n{head}, flops_per_token=6e3, peak_flops=1e11)\nseen = [0]\n"
    loop = "loss.backward()  # yours\nmodel(inputs)\nrecorder.after_backward()\noptimizer.step()\nseen[0] += targets.numel()\n"
    end = "recorder.step(loss, batch=(inputs, targets){})\nrecorder.close()"
    found = coverage(trained(head + loop + end.format(""), tmp_path / "untold", steps=60))
    (tokens,) = [each for each in found.remedies if "tokens_seen=" in each.code]
    assert {"tokens_per_sec", "mfu", "tokens_seen"} <= {*tokens.names}
    assert "tokens_per_sec" in {row.name for row in found.missing("must")}
    assert "tokens_per_sec" not in screen_of(found).partition("Not asked for")[2]
    assert "throughput_drop" in tokens.waiting
    assert tokens.code == "recorder.step(..., tokens_seen=total)"
    run = trained(head + loop + end.format(", tokens_seen=seen[0]"), tmp_path / "told", steps=60)
    assert all(metrics()[name](read_run(run)) for name in ("tokens_per_sec", "mfu"))
    assert {each.name: each.reason for each in triage(run).checks}["throughput_drop"] in (None, "too_few_points")


def test_arguments_that_serve_checks_are_one_line():
    found = coverage(RUNS / "healthy")
    (serving,) = [each for each in found.remedies if "throughput_drop" in each.waiting]
    norms = '("*.attn.q.weight", "*.attn.k.weight")'
    assert serving.code == f"Recorder(..., flops_per_token=..., peak_flops=..., spectral_norms={norms})"
    assert {"throughput_drop", "spectral_norm_runaway"} <= {*serving.waiting}
    assert {"mfu", "spectral_norm"} <= {*serving.names}


def test_the_losses_of_a_table_are_a_column_too():
    found = coverage(PETEISH)
    besides = found.remedies[0].besides
    assert "well: train_loss_raw, grad_global_norm" in besides
    assert "--map microbench_score/hellaswag=COLUMN" in besides
    assert "--map microbench_score/hellaswag=COLUMN" in screen_of(found).partition("What to record next")[0]
    columns = {"microbench_score/hellaswag": "eval/downstream/hellaswag_len_norm"}
    assert "benchmark_regression" not in {
        each.name for each in coverage(PETEISH, import_options=ImportOptions(columns=columns)).waiting
    }
    assert "microbench_score" not in coverage_of(logged(["train_loss_raw"], source="CSV")).remedies[0].besides


@pytest.mark.parametrize("kind", ["terminal", "markdown"])
def test_one_file_of_a_run_names_its_folder(kind):
    for path, what in ((CHECKPOINT, "This is one checkpoint"), (CHECKPOINT.with_name("scalars.jsonl"), "These are the scalars")):
        text = render(coverage(path), kind, PLAIN._replace(width=200))
        assert f"{what} of a run; name its folder" in text
        assert f"ckaudit coverage {CHECKPOINT.parent}\n" in text
        assert not re.search("Nothing of ckaudit records|from ckaudit import|Not judged|What to record", text)


def test_one_file_of_a_run_says_so_to_programs():
    document = json.loads(render(coverage(CHECKPOINT), "json", PLAIN))
    assert (document["part_of"], document["remedies"]) == (str(CHECKPOINT.parent), [])
    assert json.loads(render(coverage(CHECKPOINT.parent), "json", PLAIN))["part_of"] == ""
    assert coverage(PETEISH).part_of == ""


def test_commands_say_what_they_take():
    assert f"has {MIN_TOKENS} or more; for shorter ones add --tokens N" in actions()["memorization"].where
    assert "pip install '.[data]'" in actions()["data"].where


def test_the_step_that_is_too_early_is_called_the_last_so_far():
    found = coverage(RUNS / "nan_batch")
    for kind in ("terminal", "markdown"):
        text = " ".join(render(found, kind, PLAIN._replace(width=200)).split()).replace("`", "")
        assert "uniform_heads: step 200 is the last so far; heads are judged after step 1500" in text


@pytest.mark.parametrize(
    ("told", "name"), [("loss", "eval_loss"), ("eval_wer", "eval_wer"), ("None", ""), (None, ""), ('x"); evil("', ""), (3, "")]
)
def test_the_metric_of_the_best_model_is_a_plain_name(told, name):
    config = {"per_device_train_batch_size": 8, "metric_for_best_model": told}
    assert best_metric(Run("sample", manifest=Manifest(schema_version="ck.run.v1", config=config))) == name
