"""JSON logs of real runs: points, ends and minima as awk counts them, and verdicts as their authors' stories ask for."""

import json
import math
from functools import cache
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from ckaudit.importers import Imported, import_runs, import_source

REAL = Path(__file__).parents[1] / "fixtures" / "real"
MMENGINE = ("mmengine/vis_data/20241205_152037.json", "mmengine/vis_data/20241205_161234.json")
PROGRESS = "hf_trainer/mistral_lora_4ep/trainer_log.first600.jsonl"
STATE = "hf_trainer/mistral_lora_4ep/trainer_state.json"
GOLDEN = "megatron_golden/{}.json"

# name, number of values, first and last step, lowest value and its step: counted with grep, sed, sort and awk.
FACTS = {
    MMENGINE[0]: [
        ("train_loss_raw", 31, 1, 1500, 5.76587324142456, 1400),
        ("grad_global_norm", 31, 1, 1500, 14.959997711181641, 50),
    ],
    MMENGINE[1]: [
        ("train_loss_raw", 31, 1, 1500, 5.598068466186524, 1450),
        ("grad_global_norm", 31, 1, 1500, 18.813875246047974, 50),
    ],
    PROGRESS: [("train_loss_raw", 600, 10, 6000, 0.1465, 5880)],
    GOLDEN.format("bert_sm_h100"): [("train_loss_raw", 401, 1, 2000, 5.79212, 1280), ("step_time", 20, 100, 2000, 0.25904, 500)],
    GOLDEN.format("mixtral8x7b_sm_h100"): [
        ("train_loss_raw", 263, 1, 1310, 2.89214, 1240),
        ("step_time", 263, 1, 1310, 8.78526, 955),
    ],
    GOLDEN.format("nemotron3_super_sm_gb200"): [
        ("train_loss_raw", 954, 1, 4765, 2.80605, 4750),
        ("step_time", 476, 10, 4760, 9.82175, 4360),
    ],
}
SOURCES = {
    "mmengine": "MMEngine JSON log",
    "hf_trainer": "LLaMA-Factory trainer_log.jsonl",
    "megatron_golden": "Megatron-LM golden values",
}


@cache
def imported(file: str) -> Imported:
    return import_source(REAL / file)


@cache
def report(file: str) -> Report:
    return triage(REAL / file)


def curve(file: str, name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in imported(file).rows if name in row}


@pytest.mark.parametrize("file", FACTS)
def test_counts_ends_and_minima(file):
    assert imported(file).source == SOURCES[file.partition("/")[0]]
    for name, count, first, last, lowest, where in FACTS[file]:
        values = curve(file, name)
        assert (len(values), min(values), max(values)) == (count, first, last)
        assert (min(values.values()), min(values, key=values.__getitem__)) == (lowest, where)


@pytest.mark.parametrize("file", FACTS)
def test_nothing_is_wrong_with_a_healthy_run(file):
    assert [finding.message for finding in report(file).findings if finding.severity != "note"] == []


def test_steps_that_never_ran_are_no_nan_losses():
    told = report(GOLDEN.format("mixtral8x7b_sm_h100"))
    assert told.findings == []
    assert not any(math.isnan(value) for value in curve(GOLDEN.format("mixtral8x7b_sm_h100"), "train_loss_raw").values())
    assert any("930" not in note and '2,790 values are the text "nan"' in note for note in told.notes)
    assert any("was to take 5,960 steps and none is recorded after 1,310" in note for note in told.notes)


@pytest.mark.parametrize("file", MMENGINE)
def test_an_evaluation_that_says_step_0_does_not_go_back(file):
    run = imported(file)
    assert not run.table.sessions.any()
    assert any("3 evaluations say no update" in note for note in run.notes)


def test_a_folder_of_two_starts_is_two_runs():
    assert [run.name for run in import_runs(REAL / "mmengine")] == ["20241205_152037", "20241205_161234"]


def test_the_progress_log_and_the_trainers_state_tell_the_same():
    for name in ("train_loss_raw", "learning_rate"):
        whole = curve(STATE, name)
        assert curve(PROGRESS, name) == {step: value for step, value in whole.items() if step <= 6000}
    assert imported(PROGRESS).manifest.planned_steps == imported(STATE).manifest.planned_steps == 8660


def test_golden_values_are_those_of_the_file():
    for file in FACTS:
        if file.startswith("megatron"):
            values = json.loads((REAL / file).read_text())["lm loss"]["values"]
            assert curve(file, "train_loss_raw") == {int(step): value for step, value in values.items() if value != "nan"}
