"""What coverage promises is kept: whoever follows its lines has the checks judged that they were said to let judge."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from ckaudit import __version__
from ckaudit.audit.coverage.recorded import coverage_of
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.catalogue import actions
from ckaudit.reports import render
from ckaudit.reports.view import PLAIN
from ckaudit.rules import rules
from ckaudit.run.run import Run
from ckaudit.run.series import single
from tests.audit.judged import coverage, triage
from tests.audit.trained import batch, trained

FIXTURES = Path(__file__).parents[2] / "fixtures"
PYTHIA = FIXTURES / "real" / "pythia" / "160m-6.first5000.csv"
RESNET = FIXTURES / "real" / "algoperf" / "resnet_baseline_clean" / "measurements.csv"
# This model and machine have none of it.
ELSEWHERE = "one process|on the CPU|weights changed|none of|no layer that tells|single precision|calls one loss function"
FILLED = {
    "vocabulary=...": "vocabulary=11",
    "sequence_length=...": "sequence_length=31",
    "warmup_steps=...": "warmup_steps=5",
    "planned_steps=...": "planned_steps=30",
}


def logged(names, *, last=40, **facts):
    steps = np.arange(1, last + 1)
    scalars = {name: single(name, "1", steps, np.linspace(3, 2, last)) for name in names}
    return Run("sample", manifest=Manifest(schema_version="ck.run.v1", **facts), scalars=scalars)


def screen_of(found, **view):
    return " ".join(render(found, "terminal", PLAIN._replace(width=100, **view)).split())


def unkept(promised, folder):
    """Return the promised checks that neither judged, nor have numbers but too few, nor look at what this run has not."""
    checks = {each.name: each for each in triage(folder).checks}
    wrong = {name: checks[name].detail for name in promised if checks[name].reason not in (None, "too_few_points")}
    return {name: why for name, why in wrong.items() if not re.search(ELSEWHERE, why)}


def test_the_program_lets_judge_all_that_it_promises(tmp_path):
    pytest.importorskip("torch")
    found = coverage(PYTHIA)
    (program,) = [each for each in found.remedies if len(each.lines) > 1]
    assert len(program.waiting) > 50
    assert {"token_drift", "initial_loss_off", "schedule_off_plan"} <= {*program.waiting}
    code = program.code
    for dots, value in FILLED.items():
        assert dots in code
        code = code.replace(dots, value)
    folder = trained(code, tmp_path)
    assert not unkept(program.waiting, folder)
    again = coverage(folder)
    assert not {*program.waiting} & {each.name for each in again.waiting}
    lines = " ".join(each.code for each in again.remedies)
    assert not [name for name in ("vocabulary", "warmup_steps", "planned_steps", "batch", "optimizer") if f"{name}=" in lines]


def test_arguments_left_out_are_one_line_and_it_keeps_its_promise(tmp_path):
    pytest.importorskip("torch")
    bare = 'recorder = Recorder(model, "run/", optimizer=optimizer)\n'
    loop = "loss.backward()  # yours\nrecorder.after_backward()\noptimizer.step()  # yours\n"
    loop += "recorder.step(loss, batch=(inputs, targets))\nrecorder.log_after(val_loss=...)\nrecorder.close()"
    before = "from ckaudit import Recorder\n" + bare + loop
    found = coverage(trained(before, tmp_path / "bare"))
    (line,) = [each for each in found.remedies if "warmup_steps=" in each.code]
    assert {"schedule_off_plan", "spectral_norm_runaway"} == {*line.waiting}
    assert line.code.startswith("Recorder(..., ")
    assert "batch=" not in " ".join(each.code for each in found.remedies)
    assert "To fill in: sequence_length, how many tokens a row has" in line.where
    code = line.code.replace("Recorder(...", 'recorder = Recorder(model, "run/", optimizer=optimizer')
    for dots, value in {**FILLED, "flops_per_token=...": "flops_per_token=6e3", "peak_flops=...": "peak_flops=1e11"}.items():
        code = code.replace(dots, value)
    after = trained("from ckaudit import Recorder\n" + code + "\n" + loop, tmp_path / "told")
    assert not unkept(line.waiting, after)
    assert not {*line.waiting} & {each.name for each in coverage(after).waiting}


def test_a_run_without_text_is_not_asked_for_its_vocabulary():
    found = coverage(RESNET)
    assert "vocabulary" not in screen_of(found)
    skipped = {check.name: check.reason for check in triage(RESNET).checks}
    assert (skipped["initial_loss_off"], skipped["loss_not_falling"]) == ("not_applicable", None)  # one is judged by its curve
    assert "--map tokens_seen=COLUMN" in screen_of(found)


def test_what_is_scored_by_bleu_is_text():
    found = coverage(FIXTURES / "real" / "algoperf" / "wmt_caspr_spiky" / "measurements.csv")
    assert "vocabulary=..." in found.remedies[0].code
    assert "reads text" not in screen_of(found)


def test_a_command_lets_judge_all_that_it_promises(tmp_path, monkeypatch, capfd):
    tokenizers = pytest.importorskip("tokenizers")
    from ckaudit.cli.run import run

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "scalars.jsonl").write_text("".join(json.dumps({"step": n, "train_loss_raw": 3.0}) + "\n" for n in range(1, 60)))
    texts = [f"The committee read report {n} about the {n * n} rivers of the country, and agreed." for n in range(40)]
    for name, part in (("sample.jsonl", texts[:30]), ("valid.jsonl", texts[30:])):
        Path(name).write_text("".join(json.dumps({"text": text}) + "\n" for text in part))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "the": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    found = coverage(folder)
    (data,) = [each for each in found.remedies if each.code.startswith("ckaudit data")]
    assert len(data.waiting) == 5
    assert run([*shlex.split(data.code)[1:], "--quiet"]) in (0, 1)
    capfd.readouterr()
    assert not unkept(data.waiting, folder)
    assert {each.name for each in coverage(folder).young} >= {"source_drift"}


@pytest.mark.parametrize(
    ("action", "rule", "threshold", "more", "clause"),
    [
        ("data", "source_drift", "history", 1, "from the 6th sample on"),
        ("toxicity", "toxicity_rising", "min_points", 1, "from the 4th saved model on"),
        ("memorization", "memorization_rising", "min_points", 0, "from the 4th saved model on"),
        ("probes", "probes_forgotten", "min_points", 0, "from the 3rd saved model on"),
    ],
)
def test_how_many_points_a_command_must_bring_is_said(action, rule, threshold, more, clause):
    (least,) = [each.thresholds[threshold] for each in rules().values() if each.name == rule]
    assert int(re.search(r"\d+", clause)[0]) == least + more
    assert clause in actions()[action].where
    assert "--step {step}" in actions()[action].call


@pytest.mark.parametrize(
    "run",
    [
        logged(["train_loss_raw"], source="CSV"),
        logged(["train_loss_raw", "learning_rate"], source=f"ckaudit recorder {__version__}"),
        logged(["train_loss_raw"], source="Hugging Face trainer_state.json"),
        logged([]),
    ],
    ids=["csv", "recorded", "trainer", "nothing"],
)
def test_a_check_is_promised_once_and_by_the_number_that_json_says(run):
    document = json.loads(render(coverage_of(run), "json", PLAIN))
    promised = [(name, place) for place, each in enumerate(document["remedies"], 1) for name in each["waiting"]]
    waiting = {each["name"]: each["place"] for each in document["waiting"] if each["place"] is not None}
    assert dict(promised) == waiting
    assert len(promised) == len(waiting)
    counts = [len(each["waiting"]) for each in document["remedies"]]
    assert counts == sorted(counts, reverse=True)
    assert all(each["places"] == [each["place"]] for each in document["waiting"] if each["place"])


def test_what_takes_two_lines_says_which():
    run = logged(["learning_rate"], source=f"ckaudit recorder {__version__}", warmup_steps=3)
    found = coverage_of(run)
    (initial,) = [each for each in found.waiting if each.name == "initial_loss_off"]
    codes = [found.remedies[place - 1].code for place in initial.places]
    assert initial.place is None
    assert [any(word in code for code in codes) for word in ("vocabulary=", "recorder.step(loss)")] == [True, True]
    assert f"initial_loss_off: numbers {' and '.join(map(str, initial.places))}" in screen_of(found)


@pytest.mark.parametrize("kind", ["terminal", "markdown"])
def test_where_all_is_told_no_name_is_left_out(kind):
    text = render(coverage(PYTHIA), kind, PLAIN._replace(verbose=kind == "terminal", width=100))
    assert not re.search(r"and \d+ more", text)


@pytest.mark.parametrize("verbose", [True, False])
def test_inside_an_item_the_most_needed_comes_first(verbose):
    for block in render(coverage(PYTHIA), "terminal", PLAIN._replace(verbose=verbose, width=100)).split("\n\n"):
        if re.match(r"\d+\. ", block):
            levels = [
                ["must", "should", "nice"].index(each) for each in re.findall(r"^  (must|should|nice) ", block, re.MULTILINE)
            ]
            assert levels == sorted(levels)


def test_columns_of_a_table_are_named():
    text = screen_of(coverage(PYTHIA))
    assert "Columns of the table by these names" in text
    assert "learning_rate, val_loss, tokens_seen, slice_val_loss/NAME, error_event_rate/oom." in text
    partly = coverage_of(logged(["train_loss_raw", "val_loss"], source="CSV"))
    assert ", val_loss" not in partly.remedies[0].besides


def test_record_again_is_said_of_older_recorders_only(tmp_path):
    torch = pytest.importorskip("torch")
    older = coverage_of(logged(["train_loss_raw", "learning_rate"], source="ckaudit recorder 0.0.1", environment={"python": "3"}))
    assert any("An older Recorder wrote this run" in each.where for each in older.remedies)
    writer = coverage_of(logged(["train_loss_raw", "learning_rate"], source=f"ckaudit writer {__version__}"))
    assert any("A Writer records what it is given" in each.where for each in writer.remedies)
    model = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11))
    lines = 'recorder = Recorder(model, "run/", optimizer=optimizer)\nloss.backward()  # yours\noptimizer.step()\n'
    lines += "recorder.step(loss, batch=(inputs, targets))\nrecorder.close()"
    found = coverage(trained("from ckaudit import Recorder\n" + lines, tmp_path, model=model))
    assert not [each for each in found.remedies if not each.lines]
    assert "the Recorder found no blocks" in next(row for row in found.rows if row.name == "residual_rms").not_applicable
    assert "residual_rms" in screen_of(found).partition("Not asked for")[2]


def test_a_trainers_gpt2_is_measured_or_says_why_not(tmp_path):
    transformers = pytest.importorskip("transformers")
    from ckaudit.recorder.huggingface import RecorderCallback

    sizes = {"vocab_size": 11, "n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    rows = [{"input_ids": batch(n)[0][0], "labels": batch(n)[0][0]} for n in range(60)]
    usual = {"max_steps": 30, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    made = transformers.Trainer(
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)),
        transformers.TrainingArguments(str(tmp_path / "out"), save_strategy="no", **usual),
        train_dataset=rows,
        callbacks=[RecorderCallback(tmp_path / "run")],
    )
    made.remove_callback(transformers.PrinterCallback)
    made.train()
    checks = {each.name: each.outcome for each in triage(tmp_path / "run").checks}
    assert (checks["target_misalignment"], checks["target_equals_input"]) == ("passed", "passed")
    found = coverage(tmp_path / "run")
    assert not [each for each in found.remedies if not each.lines]
    assert "rank_batch" not in " ".join(each.code for each in found.remedies)  # there is one process


def test_uniform_heads_are_young_up_to_the_step_that_is_named():
    step = np.arange(0, 201, 50)
    heads = {"uniform_head_fraction": single("uniform_head_fraction", "1", step, np.zeros(len(step)))}
    (rule,) = [each for each in rules().values() if each.name == "uniform_heads"]
    (skip,) = rule.function(heads["uniform_head_fraction"], None, None, None, None)
    assert skip.detail == "step 200; heads are judged after step 200"
    longer = single("uniform_head_fraction", "1", step + 1, np.zeros(len(step)))
    assert not [*rule.function(longer, None, None, None, None)]


def test_one_check_is_it_and_not_them():
    found = coverage(FIXTURES / "runs" / "experts_two_ranks")
    assert len(found.waiting) == 1
    assert re.search(r"1 of \d+ checks cannot judge this run, for want of numbers; number 1 below lets it\.", screen_of(found))


def test_the_page_on_recording_says_what_to_tell_the_recorder():
    text = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    assert all(f"`{name}=`" in text for name in ("vocabulary", "warmup_steps", "batch"))
