"""Coverage: what was recorded is seen, what was not is named with what it would have let us judge, and guesses say why."""

import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit.coverage.applicability import why_not_applicable
from ckaudit.audit.coverage.recorded import coverage, coverage_of, level_of
from ckaudit.audit.scale_and_stage import scale_of, stage_of
from ckaudit.contract.schema.manifest import Manifest, TensorFacts
from ckaudit.metrics.catalogue import RANKS, entries
from ckaudit.reports import FEW_FORMATS, render
from ckaudit.reports.view import PLAIN, View
from ckaudit.run.run import Run
from ckaudit.run.series import single
from tests.loops import for_each

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


def run_of(*, last=100, scalars=(), rate=None, **facts):
    steps = np.arange(1, last + 1)
    logged = {name: single(name, "1", steps, np.ones(last)) for name in ("train_loss_raw", *scalars)}
    if rate is not None:
        logged["learning_rate"] = single("learning_rate", "1", steps, np.asarray(rate, float))
    manifest = Manifest(schema_version="ck.run.v1", **facts) if facts else None
    return Run("sample", manifest=manifest, scalars=logged)


def row(found, name):
    return next(each for each in found.rows if each.name == name)


@pytest.mark.parametrize(
    ("facts", "word", "reason"),
    [
        ({"parameters": 102_864}, "nano", "102,864"),
        ({"parameters": 999_999_999}, "nano", "parameters"),
        ({"parameters": 1_000_000_000}, "medium", "parameters"),
        ({"parameters": 20_000_000_000}, "large", "parameters"),
        ({"parameters": 10, "model_scale_hint": "Large run"}, "large", "model_scale_hint"),
        ({"parameters": 10, "model_scale_hint": "enlarged"}, "nano", "10 parameters"),
        ({"model_scale_hint": "qwen3_0.6b_like"}, "nano", "600,000,000"),
        ({"model_scale_hint": "Llama 3 70B"}, "large", "70,000,000,000"),
        ({}, "nano", "--scale"),
    ],
)
def test_the_scale_is_told_by_word_then_count_then_hint(facts, word, reason):
    found = scale_of(run_of(**facts))
    assert found.word == word
    assert reason in found.reason


@pytest.mark.parametrize(
    ("run", "word", "reason"),
    [
        ({"last": 100, "warmup_steps": 100, "planned_steps": 110}, "early", "warm-up"),
        ({"last": 99, "planned_steps": 1000}, "early", "99 of 1000"),
        ({"last": 100, "planned_steps": 1000}, "steady", "planned"),
        ({"last": 799, "planned_steps": 1000}, "steady", "planned"),
        ({"last": 800, "planned_steps": 1000}, "late", "planned"),
        ({"last": 4, "rate": [1, 4, 4, 1]}, "late", "25%"),
        ({"last": 4, "rate": [1, 4, 4, 3]}, "steady", "no plan"),
        ({"last": 4, "rate": [0, 0, 0, 0]}, "steady", "no plan"),
        ({"last": 4}, "steady", "step 4"),
    ],
)
def test_the_stage_is_told_by_plan_then_learning_rate(run, word, reason):
    found = stage_of(run_of(**run))
    assert found.word == word
    assert reason in found.reason


def test_nothing_recorded_is_early():
    assert stage_of(Run("empty")).word == "early"


@pytest.mark.parametrize(
    ("name", "scale", "stage", "level"),
    [
        ("loss_scale", "nano", "early", "must"),
        ("val_loss", "nano", "early", "should"),  # must by scale, should by stage
        ("mfu", "nano", "late", "nice"),  # nice by scale, must by stage
        ("rtp_toxicity_prob", "large", "early", "nice"),  # must by scale, nice by stage
        ("max_attn_logit", "large", "late", "should"),
    ],
)
def test_the_lesser_of_the_two_words_counts(name, scale, stage, level):
    assert level_of(entries()[name], scale=scale, stage=stage) == level


def test_what_is_logged_is_recorded_and_the_rest_is_missing():
    found = coverage_of(run_of(scalars=["val_loss", "gpu_util"]))
    assert row(found, "train_loss_raw").recorded
    assert row(found, "val_loss").recorded
    assert row(found, "train_ppl").recorded  # follows from the loss
    assert row(found, "gpu_util").recorded
    assert not row(found, "grad_global_norm").recorded
    assert {each.name for each in found.missing("must")} >= {"grad_global_norm", "update_to_weight"}
    assert len(found.rows) == len(entries())


def test_a_missing_number_names_the_rules_and_causes_that_wait_for_it():
    found = coverage_of(run_of())
    assert "GRAD002 exploding_gradient" in row(found, "grad_global_norm").rules
    assert "GRAD001 vanishing_gradient" in row(found, "waterfall_ratio").rules  # by way of what it covers
    assert "ATTN001 entropy_collapse" in row(found, "attn_entropy").rules
    assert "missing_warmup" in row(found, "learning_rate").causes


def test_a_number_of_the_same_playbook_is_told_beside():
    found = coverage(RUNS / "healthy")
    assert row(found, "nan_inf_events").beside == ("nonfinite_weights", "nonfinite_gradients", "nonfinite_activations")


@for_each(
    ("condition", "facts", "applies"),
    [
        ("", {}, True),
        ("experts", {}, False),
        ("experts", {"tensors": {"router": TensorFacts(kind="router")}}, True),
        ("experts", {"tensors": {"w": TensorFacts(kind="mlp")}}, False),
        ("attention", {}, True),
        ("attention", {"tensors": {"w": TensorFacts(kind="conv")}}, False),
        ("attention", {"tensors": {"w": TensorFacts(kind="attention")}}, True),
        ("ranks", {"world_size": 1}, False),
        ("ranks", {"world_size": 8}, True),
        ("ranks", {"name": "unknown"}, True),
        ("device", {"tensors": {"w": TensorFacts(device="cpu")}}, False),
        ("device", {"tensors": {"w": TensorFacts(device="cuda:0")}}, True),
        ("device", {"tensors": {"w": TensorFacts()}}, True),
        ("loss_scaler", {"source": "ckaudit recorder 0.1.0"}, False),
        ("loss_scaler", {"source": "another tracker"}, False),
        ("loss_scaler", {"source": "another tracker", "config": {"fp16": True}}, True),
        ("loss_scaler", {"tensors": {"w": TensorFacts(dtype="float16")}}, True),
        ("loss_scaler", {"tensors": {"w": TensorFacts(dtype="bfloat16")}}, False),
        ("attention", {"source": "AlgoPerf measurements.csv"}, False),
        ("attention", {"source": "AlgoPerf measurements.csv", "vocabulary": 32}, True),
        ("attention", {"source": "CSV"}, True),
        ("text", {"source": "AlgoPerf measurements.csv"}, False),
        ("text", {"source": "AlgoPerf measurements.csv", "tokenizer_hash": "a"}, True),
        ("text", {"source": "CSV"}, True),
        ("text", {"tensors": {"w": TensorFacts(kind="conv")}}, False),
        ("text", {"tensors": {"w": TensorFacts(kind="embedding")}}, True),
    ],
)
def test_what_makes_no_sense_for_a_run_is_not_asked_for(condition, facts, applies):
    assert bool(why_not_applicable(run_of(**facts), condition)) is not applies


def test_experts_are_those_that_routed_something():
    path = "moe.*.dropped"
    nothing, something = (single(path, "1", np.arange(1, 3), np.zeros(2), np.full(2, known)) for known in (False, True))
    assert why_not_applicable(Run("dense", sections={path: nothing}), "experts")
    assert not why_not_applicable(Run("sparse", sections={path: something}), "experts")
    assert not why_not_applicable(run_of(scalars=["moe_drop_rate"]), "experts")


def test_a_scale_that_was_logged_is_one_of_a_scaler():
    assert not why_not_applicable(run_of(scalars=["loss_scale"], source="ckaudit recorder 0.1.0"), "loss_scaler")


def test_a_dense_model_on_one_processor_misses_no_experts_and_no_ranks():
    found = coverage(RUNS / "healthy")
    asked = {each.name for level in RANKS for each in found.of(level)}
    assert not asked & {"moe_drop_rate", "straggler_ratio", "gpu_util", "loss_scale"}
    assert {each.name for each in found.missing("must")} >= {"near_dup_rate", "train_val_overlap"}
    assert (found.scale, found.stage, found.step) == ("nano", "late", 2000)


def test_the_user_knows_better():
    found = coverage_of(run_of(parameters=10), scale="large", stage="early")
    assert (found.scale, found.scale_reason, found.stage) == ("large", "as asked for", "early")
    assert row(found, "moe_drop_rate").level == "must"


@pytest.mark.parametrize("kind", FEW_FORMATS)
@pytest.mark.parametrize("verbose", [True, False])
def test_every_format_names_what_is_missing(kind, verbose):
    found = coverage_of(run_of())
    text = render(found, kind, PLAIN._replace(verbose=verbose))
    assert all(each.name in text for level in RANKS for each in found.missing(level))
    assert "recorder.measure_curvature" in text
    assert "moe_drop_rate" in text  # not asked for, and said so


def test_json_counts_are_those_of_the_rows():
    document = json.loads(render(coverage_of(run_of()), "json", PLAIN))
    for level, count in document["counts"].items():
        asked = [each for each in document["rows"] if each["level"] == level and (each["recorded"] or not each["not_applicable"])]
        assert count == {"recorded": sum(each["recorded"] for each in asked), "of": len(asked)}


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_lines_fit_the_screen(width, unicode):
    found = coverage_of(run_of())
    text = render(found, "terminal", View(width=width, unicode=unicode, verbose=True))
    unbroken = {f"    {line.code}" for each in found.remedies for line in each.lines}
    assert max(len(line) for line in text.splitlines() if line not in unbroken) <= width
    assert unicode or text.isascii()


def test_a_hostile_name_steers_nothing():
    run = Run("\x1b[31m|evil|", scalars=run_of().scalars)
    assert "\x1b" not in render(coverage_of(run), "terminal", PLAIN)
    text = render(coverage_of(run), "markdown", PLAIN)
    assert "\x1b" not in text
    inside = [line for line in text.splitlines() if "|evil|" in line]
    assert all(line.startswith("ckaudit ") for line in inside)  # in a fence, as a word of a shell


def test_nothing_is_missing_where_no_batch_came_twice():
    healthy = coverage(RUNS / "float16_overflow")
    assert "batch_repeat_distance" not in row(healthy, "near_dup_rate").lacks
    assert row(healthy, "near_dup_rate").beside == ("batch_duplicate_share",)


def test_a_run_with_everything_is_asked_for_one_thing_only():
    found = coverage(RUNS / "experts_two_ranks")
    assert [row.name for row in found.rows if not row.recorded and not row.not_applicable] == ["error_event_rate"]
    text = " ".join(render(found, "terminal", PLAIN._replace(width=80)).split())
    assert "This run is over: the lines are for the next one." in text
    assert "1 of " + str(found.checks) + " checks cannot judge this run, for want of numbers; number 1 below lets it" in text
