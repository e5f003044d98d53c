"""Remedies: what is missing stands under the line that records it, the most telling first, and every line can be used."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer.main
from msgspec.structs import replace

from ckaudit.audit.coverage.recorded import coverage_of
from ckaudit.audit.coverage.remedies import attention_weights, lines_for_run
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.contract.schema.manifest import Manifest, TensorFacts
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import RANKS, actions, entries
from ckaudit.recorder.files.manifest import FACTS, SOURCES
from ckaudit.reports import render
from ckaudit.reports.view import PLAIN, View
from ckaudit.run.read import read_run
from ckaudit.run.run import Run
from ckaudit.run.series import single
from tests.audit.judged import coverage, triage
from tests.loops import for_each

FIXTURES = Path(__file__).parents[2] / "fixtures"
WHISPER = FIXTURES / "real" / "hf_trainer" / "whisper_small_hi_overfit" / "trainer_state.json"
HEALTHY = FIXTURES / "runs" / "healthy"
read = cache(coverage)


def run_of(names=("train_loss_raw",), *, last=100, **facts):
    steps = np.arange(1, last + 1)
    logged = {name: single(name, "1", steps, np.ones(last)) for name in names}
    return Run("sample", manifest=Manifest(schema_version="ck.run.v1", **facts), scalars=logged)


def row(found, name):
    return next(each for each in found.rows if each.name == name)


def remedy(found, name):
    (only,) = [each for each in found.remedies if name in each.names]
    return only


@pytest.mark.parametrize("source", [HEALTHY, WHISPER])
def test_every_missing_number_stands_under_one_line(source):
    found = read(source)
    names = [name for each in found.remedies for name in each.names]
    assert len(names) == len(set(names))
    assert {name for name in names if not row(found, name).recorded} == {
        each.name for level in RANKS for each in found.missing(level)
    }


@pytest.mark.parametrize("source", [HEALTHY, WHISPER])
def test_lines_are_sorted_by_what_waits_then_by_need(source):
    found = read(source)
    keys = [
        (-len(each.waiting), -len(each.readers), min(RANKS.index(row(found, name).level) for name in each.names), not each.lines)
        for each in found.remedies
    ]
    assert keys == sorted(keys)
    for each in found.remedies:
        rows = [row(found, name) for name in each.names]
        inner = [(-len(one.waiting), -len(one.rules + one.causes), RANKS.index(one.level)) for one in rows]
        assert inner == sorted(inner)
        assert set(each.readers) == {
            reader for name in each.names for reader in (*row(found, name).rules, *row(found, name).causes)
        }


def test_the_line_that_most_rules_wait_for_is_first():
    found = coverage_of(run_of())
    assert "recorder.after_backward()" in [line.code for line in found.remedies[0].lines]
    assert "GRAD001 vanishing_gradient" in found.remedies[0].readers
    recorded = coverage_of(run_of(source="ckaudit recorder 0.1.0"))
    assert "recorder.after_backward()" in [each.code for each in recorded.remedies]


def test_one_call_of_data_records_all_that_needs_one():
    found = read(HEALTHY)
    line = remedy(found, "near_dup_rate")
    assert {"train_val_overlap", "pad_fraction", "data_toxicity_rate", "pii_hit_rate"} <= set(line.names)
    options = "--validation valid.jsonl --tokenizer tokenizer.json"
    assert line.code == f"ckaudit data sample.jsonl {options} --into {HEALTHY} --step 2000"
    extras = {each.what: each.names for each in line.extras}
    assert extras["with --classifier module:function"] == ("data_toxicity_rate",)
    assert not any("--tokenizer" in what for what in extras)  # the line has it already
    assert extras["from a column attention_mask"] == ("pad_fraction",)


def test_options_are_those_of_what_is_missing():
    named = {"b.0.q.weight": TensorFacts(shape=[4, 4])}
    line = remedy(
        coverage_of(run_of(["train_loss_raw", "learning_rate", "update_to_weight"], tensors=named)), "spectral_norm"
    ).code
    assert line.startswith('Recorder(..., spectral_norms=("*.q.weight",))')


def test_a_trainers_user_is_told_the_trainers_own_ways():
    found = read(WHISPER)
    python = [line.code for each in found.remedies for line in each.lines if not line.code.startswith("ckaudit")]
    assert not [line for line in python if line.startswith("recorder")]
    assert (
        'callback = RecorderCallback("run/")\ntrainer = Trainer(..., callbacks=[callback])'
        in remedy(found, "grad_global_norm").code
    )
    assert remedy(found, "gradient_norm") == remedy(found, "attn_entropy") == remedy(found, "grad_global_norm")
    assert not re.search(r"optimizer|scaler|warmup|clip", remedy(found, "lr_phase").code)
    assert "include_num_input_tokens_seen" in remedy(found, "tokens_seen").code
    without = coverage_of(run_of(["grad_global_norm"], source="Hugging Face trainer_state.json"))
    assert "eval_strategy" in remedy(without, "val_loss").code
    recorded = coverage_of(run_of(source="ckaudit recorder 0.1.0", config={"per_device_train_batch_size": 8}))
    assert remedy(recorded, "learning_rate").where.startswith("Nothing to write")
    assert (
        remedy(recorded, "mfu").code
        == "RecorderCallback(..., flops_per_token=..., peak_flops=..., vocabulary=..., sequence_length=..., warmup_steps=...)"
    )


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["blocks.0.attn.q.weight", "blocks.1.attn.q.weight", "blocks.1.attn.out.weight"], '("*.attn.q.weight",)'),
        (["h.0.attn.c_attn.weight", "wte.weight"], '("*.attn.c_attn.weight",)'),
        (["layers.0.wq.weight", "layers.0.wk.weight"], '("*.wq.weight", "*.wk.weight")'),
        (['b.0.q.weight"); evil("', "b.0.q.\n```"], '("*.q_proj.weight", "*.k_proj.weight")'),
        ([], '("*.q_proj.weight", "*.k_proj.weight")'),
    ],
)
def test_patterns_are_of_the_runs_own_names(names, patterns):
    run = run_of(tensors={name: TensorFacts(shape=[4, 4]) for name in names})
    assert attention_weights(run) == patterns


def test_a_bias_has_no_singular_value():
    tensors = {"b.0.q.weight": TensorFacts(shape=[4, 4]), "b.0.q.bias": TensorFacts(shape=[4])}
    assert attention_weights(run_of(tensors=tensors)) == '("*.q.weight",)'


@pytest.mark.parametrize("trainer", [False, True])
def test_every_line_of_python_parses_and_calls_what_there_is(trainer):
    torch = pytest.importorskip("torch")
    assert torch
    from ckaudit.recorder.recorder import Recorder

    allowed = {*inspect.signature(Recorder).parameters, *FACTS, *SOURCES}
    found = coverage_of(run_of([], source="Hugging Face" if trainer else "mine", planned_steps=10))
    for each in (line for remedy in found.remedies for line in remedy.lines if not line.code.startswith("ckaudit")):
        tree = ast.parse(each.code)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            words = {word.arg for word in call.keywords if word.arg}
            name = ast.unparse(call.func)
            if name in ("Recorder", "RecorderCallback"):
                assert words <= allowed
            elif "recorder." in name:
                assert callable(getattr(Recorder, name.rpartition(".")[2]))


def test_every_command_and_option_exists():
    from ckaudit.cli.app import build

    tree = typer.main.get_command(build())
    found = coverage_of(run_of([], vocabulary=10))
    for each in found.remedies:
        if each.code.startswith("ckaudit"):
            words = each.code.split()[1:]
            command = tree.commands[words[0]]
            command = getattr(command, "commands", {}).get(words[1], command)
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known


def test_the_trainers_arguments_are_the_trainers():
    transformers = pytest.importorskip("transformers")
    known = inspect.signature(transformers.TrainingArguments).parameters
    lines = [way.call for each in actions().values() if (way := each.huggingface) and way.call.startswith("TrainingArguments")]
    assert len(lines) == 2
    assert all(word in known for line in lines for word in re.findall(r"(\w+)=", line))


@for_each("name", entries())
def test_every_entry_has_an_action(name):
    action = actions()[entries()[name].action]
    assert not entries()[name].options or "{options}" in action.call
    assert action.like == "" or action.like in actions()
    assert action.where.endswith(".")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_lines_to_copy_are_unbroken(width):
    found = coverage_of(run_of())
    text = render(found, "terminal", View(width=width, verbose=True)).splitlines()
    assert all(f"    {line.code}" in text for each in found.remedies for line in each.lines)


def test_where_no_check_reads_a_number_it_says_so_once():
    read_by_some = read(FIXTURES / "runs" / "experts_two_ranks")
    unread = tuple(replace(each, waiting=(), readers=()) for each in read_by_some.remedies)
    found = replace(read_by_some, young=(), waiting=(), remedies=unread)
    text = render(found, "terminal", PLAIN._replace(verbose=True, width=100))
    assert text.splitlines()[2].startswith(
        "Every check has the numbers that it needs. What follows is for those who read the run"
    )
    assert "no rule or cause reads" not in text


def test_a_run_that_is_over_is_told_so():
    assert coverage_of(run_of(last=100, planned_steps=100)).over
    assert not coverage_of(run_of(last=99, planned_steps=100)).over
    assert not coverage_of(run_of(last=99)).over
    assert "the next one" in render(coverage_of(run_of(last=100, planned_steps=100)), "terminal", PLAIN)


def test_verbose_lists_what_is_recorded():
    found = read(HEALTHY)
    quiet, all_of_it = (render(found, "terminal", PLAIN._replace(verbose=verbose, width=100)) for verbose in (False, True))
    assert "grad_global_norm" not in quiet
    assert all(each.name in all_of_it.partition("What to record next")[0] for each in found.rows if each.recorded)


def test_columns_that_were_left_out_are_named_with_the_way_to_read_them(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,loss,unseen_nll\n1,2.0,3.0\n2,1.9,2.9\n")
    text = render(coverage(log), "terminal", PLAIN)
    assert "unseen_nll" in text
    assert "--map val_loss=COLUMN" in text
    assert row(coverage(log, import_options=ImportOptions(columns={"val_loss": "unseen_nll"})), "val_loss").recorded


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "scalars.jsonl").write_text('{"step":1,"train_loss_raw":2.0}\n')
    (tmp_path / "analysis_checkpoint_step_00000001.json").write_text('{"schema_version": "ck.analysis.v1", "st')
    for kind in ("terminal", "markdown", "json"):
        text = render(coverage(tmp_path), kind, PLAIN._replace(width=200))
        assert "analysis_checkpoint_step_00000001.json" in text.replace("&#95;", "_")
        assert "ckaudit validate" in text


def test_losses_alone_do_not_make_the_count_of_bad_places():
    found = row(read(WHISPER), "nan_inf_events")
    assert (found.recorded, found.partial) == (False, True)
    assert row(coverage_of(run_of(["train_loss_raw", "grad_global_norm"])), "nan_inf_events").recorded
    assert row(coverage_of(run_of(["nan_inf_events"])), "nan_inf_events").recorded


def test_sessions_alone_do_not_make_the_count_of_errors():
    assert not row(read(HEALTHY), "error_event_rate").recorded
    assert not metrics()["error_event_rate"](read_run(HEALTHY))
    assert row(coverage_of(run_of(["error_event_rate"])), "error_event_rate").recorded


def test_one_hash_compared_with_nothing_is_not_recorded(tmp_path):
    log = tmp_path / "scalars.jsonl"
    lines = '{"step":1,"train_loss_raw":2.0}\n{"step":1,"eval_artifact_hash/arc":"sha256:1"}\n'
    log.write_text(lines)
    assert not row(coverage(tmp_path), "eval_artifact_hash").recorded
    log.write_text(lines + '{"step":2,"eval_artifact_hash/arc":"sha256:1"}\n')
    assert row(coverage(tmp_path), "eval_artifact_hash").recorded


def test_a_graph_network_is_not_asked_for_text_and_attention():
    found = coverage(FIXTURES / "real" / "algoperf" / "ogbg_prodigy_overfit_s2" / "measurements.csv")
    asked = {each.name for level in RANKS for each in found.of(level)}
    assert not asked & {"attn_entropy", "max_attn_logit", "tokens_seen", "near_dup_rate", "rtp_toxicity_prob", "loss_scale"}
    assert {"gradient_norm", "step_time"} <= asked


def test_what_a_check_waits_for_is_named_though_another_side_is_recorded():
    found = coverage_of(run_of(["attn_entropy", "update_to_weight"]))
    assert row(found, "attn_entropy").recorded
    assert "ATTN001 entropy_collapse" in row(found, "attn_entropy").rules
    text = " ".join(render(found, "terminal", PLAIN).split())
    assert "attn_entropy is recorded, but not normalized_attention_entropy, min_normalized_entropy" in text
    assert row(found, "attn_entropy").waiting == ("impossible_value",), "a collapse is judged from the entropy alone"


@pytest.mark.parametrize("source", [FIXTURES / "runs" / "lr_too_high", WHISPER])
def test_whatever_a_rule_was_skipped_for_is_named(source):
    needed = {
        word.strip()
        for check in triage(source).checks
        if check.reason == "not_recorded"
        for word in (check.detail or "").removeprefix("needs ").split(",")
    }
    text = render(read(source), "terminal", PLAIN._replace(verbose=True, width=100))
    assert {name for name in needed if name in metrics()} <= set(re.findall(r"\w+", text))


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"source": "ckaudit recorder 0.1.0"}, ["recorder.pin(batch)"]),
        ({"source": "ckaudit recorder 0.1.0", "trainer": "huggingface"}, ["callback.pin(batch)"]),
        ({"source": "CSV"}, ['recorder = Recorder(model, "run/")', "recorder.pin(batch)"]),
        (
            {"source": "Hugging Face trainer_state.json"},
            ['trainer = Trainer(..., callbacks=[RecorderCallback("run/")])', "callback.pin(batch)"],
        ),
        (
            {"source": "Lightning metrics.csv"},
            ['trainer = Trainer(..., callbacks=[RecorderCallback("run/")])', "callback.pin((inputs, targets))"],
        ),
        ({}, ["recorder.pin(batch)"]),
    ],
)
def test_a_line_alone_is_told_by_a_call_that_the_writer_has_or_after_the_one_that_makes_it(facts, told):
    assert [*lines_for_run(run_of(**facts), "fixed_probe_loss")] == told
