"""What coverage says to do next: a program that runs, the line of the input that is missing, and no line where none helps."""

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from ckaudit.audit.coverage.applicability import missing_inputs
from ckaudit.audit.coverage.recorded import coverage_of
from ckaudit.audit.load_run import is_ours, open_run
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.summaries import most_missed, needs_of
from ckaudit.explain import explain
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import actions, entries
from ckaudit.reports import render
from ckaudit.reports.schemas import output_schema
from ckaudit.reports.terminal.explain import pages
from ckaudit.reports.view import PLAIN
from ckaudit.run.read import read_run
from ckaudit.run.run import Run
from ckaudit.run.series import Series, single
from tests.audit.judged import coverage, triage

FIXTURES = Path(__file__).parents[2] / "fixtures"
ALGOPERF = FIXTURES / "real" / "algoperf"
RESNET = ALGOPERF / "resnet_baseline_clean" / "measurements.csv"
WHISPER = FIXTURES / "real" / "hf_trainer" / "whisper_small_hi_overfit" / "trainer_state.json"
HEALTHY = FIXTURES / "runs" / "healthy"


def run_of(values, **facts):
    logged = {name: single(name, "1", np.arange(1, len(each) + 1), np.asarray(each, float)) for name, each in values.items()}
    return Run("sample", manifest=Manifest(schema_version="ck.run.v1", **facts), scalars=logged)


def row(found, name):
    return next(each for each in found.rows if each.name == name)


def lines_of(found, name):
    return [line.code for each in found.remedies if name in each.names for line in each.lines]


def program_of(found):
    (lines,) = [each.lines for each in found.remedies if len(each.lines) > 1]
    return lines


def screen_of(found, **view):
    return " ".join(render(found, "terminal", PLAIN._replace(width=100, **view)).split())


def test_the_program_that_is_printed_records_what_it_promises(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.ReLU(), torch.nn.Linear(8, 11))
    found = coverage_of(run_of({"train_loss_raw": [1.0]}, source="CSV"))
    code = [each.code for each in program_of(found)]
    names = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    loop = code.index("loss.backward()  # yours")
    told = (
        "\n".join(code[:loop])
        .replace("vocabulary=...", "vocabulary=11")
        .replace("length=...", "length=31")
        .replace("steps=...", "steps=30")
    )
    exec(told, names)
    for _ in range(30):
        tokens = torch.randint(11, (4, 7))
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        names["optimizer"].zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        exec("\n".join(code[loop:-1]).replace("...", "2.0"), names | {"loss": loss, "inputs": inputs, "targets": targets})
    exec(code[-1], names)
    run = read_run(tmp_path / "run")
    for name in (
        "train_loss_raw",
        "val_loss",
        "learning_rate",
        "grad_global_norm",
        "gradient_norm",
        "update_to_weight",
        "weight_std",
    ):
        assert metrics()[name](run), name
    for line in program_of(found):
        assert not line.brings or any(metrics()[name](run) for name in line.brings), line.code
    assert not run.findings


def test_every_line_says_when_it_comes_and_what_it_brings():
    for line in program_of(coverage(RESNET)):
        assert not line.code.startswith("recorder") or line.when
        assert not line.code.startswith(("recorder.step", "recorder.log_after", "recorder.after")) or line.brings


def test_the_program_is_in_order_and_whole():
    lines = [each.code for each in program_of(coverage(RESNET))]
    calls = [
        "import",
        "Recorder(",
        "loss.backward",
        "after_backward",
        "optimizer.step",
        "recorder.step(",
        "log_after(",
        "close()",
    ]
    places = [next(place for place, line in enumerate(lines) if call in line) for call in calls]
    assert places == sorted(places) == list(range(len(lines)))


def test_who_has_a_recorder_is_shown_no_program_and_a_trainers_user_the_callback():
    assert all(len(each.lines) < 2 for each in coverage(HEALTHY).remedies)
    assert [each.code.partition("(")[0] for each in program_of(coverage(WHISPER))][1:] == [
        "callback = RecorderCallback",
        "trainer = Trainer",
    ]


def test_the_writer_is_named_for_logs_of_jax():
    assert "ckaudit.Writer" in coverage(RESNET).remedies[0].besides
    assert not any("Writer" in each.besides for each in coverage_of(run_of({"train_loss_raw": [1.0]}, source="CSV")).remedies)


def test_the_line_is_that_of_the_input_that_is_missing():
    ours = "ckaudit recorder 0.1.0"
    no_training = coverage_of(run_of({"val_loss": [2.0, 1.9]}, source=ours))
    assert lines_of(no_training, "train_val_gap") == lines_of(no_training, "train_loss_raw") == ["recorder.step(loss)"]
    no_evaluation = coverage_of(run_of({"train_loss_raw": [2.0, 1.9]}, source=ours))
    assert lines_of(no_evaluation, "train_val_gap") == ["recorder.log_after(val_loss=...)"]
    neither = row(coverage_of(run_of({"learning_rate": [1.0]})), "train_val_gap")
    assert neither.inputs == ("val_loss", "train_loss_raw")
    no_clock = coverage_of(run_of({"tokens_seen": [10.0, 20.0], "train_loss_raw": [1.0, 1.0]}))
    assert lines_of(no_clock, "tokens_per_sec") == lines_of(no_clock, "step_time")


def test_explain_names_the_line_of_each_input():
    text = pages(explain(["train_val_gap"]), PLAIN)
    assert "    recorder.step(loss)\n" in text
    assert "    recorder.log_after(val_loss=...)\n" in text


@pytest.mark.parametrize("name", [name for name, entry in entries().items() if entry.needs])
def test_needs_are_what_the_metric_reads(name):
    read = {*metrics()[name].reads, *metrics()[name].uses}
    for need in missing_inputs(Run("empty"), name):
        assert {need, *metrics()[need].reads} & read, need


SCALARS = [name for name, entry in entries().items() if entry.needs and entry.action != "after_backward"]


def inputs_of(name, points):
    names = set(missing_inputs(Run("empty"), name))
    steps = 100 * np.arange(1, points + 1)
    fall = 2 + 5 / np.sqrt(steps)
    logged = {need: single(need, "1", steps, steps if need == "tokens_seen" else fall) for need in names}
    if "slice_val_loss" in names:
        both = np.stack([fall, fall + 1], axis=1)
        logged["slice_val_loss"] = Series("slice_val_loss", "1", steps, ("regular", "irregular"), both, both > 0)
    if "step_time" in names:
        logged["time"] = single("time", "s", steps, steps / 10)
    return Run("inputs", scalars=logged)


@pytest.mark.parametrize("name", SCALARS)
def test_with_the_inputs_there_is_a_value_from_the_least_number_of_points_on(name):
    least = entries()[name].least
    assert row(coverage_of(inputs_of(name, least or 3)), name).recorded
    assert not least or not row(coverage_of(inputs_of(name, least - 1)), name).recorded


def test_too_few_points_are_mended_by_no_line():
    found = coverage_of(run_of({"train_loss_raw": np.linspace(2, 1, 15), "val_loss": np.linspace(2, 1, 15)}))
    assert row(found, "loss_excess").unusable == "too few points of train_loss_raw (15 of 51)"
    assert not lines_of(found, "loss_excess")
    assert "loss_excess" not in {name for each in found.waiting for name in each.needs}
    assert "loss_excess: too few points of train_loss_raw (15 of 51)" in screen_of(found)
    assert row(coverage_of(run_of({"train_loss_raw": np.linspace(2, 1, 51)})), "loss_excess").recorded
    assert not row(coverage_of(run_of({"train_loss_raw": np.linspace(2, 1, 50)})), "loss_excess").recorded


@pytest.mark.parametrize(
    ("count", "apart", "reason"),
    [(4, 100, "too few points of val_loss (4 of 5)"), (5, 100, ""), (5, 1, "5 points of val_loss, too close together for it")],
)
def test_a_slope_takes_as_many_evaluations_as_is_said(count, apart, reason):
    losses = single("val_loss", "1", apart * np.arange(1, count + 1), np.linspace(2, 1, count))
    found = row(coverage_of(Run("sample", scalars={"val_loss": losses})), "val_slope")
    assert (found.recorded, found.unusable) == (not reason, reason)


def test_evaluations_that_are_all_nan_are_said_to_be():
    found = coverage_of(run_of({"val_loss": np.full(62, np.nan)}))
    assert row(found, "val_slope").unusable == "62 evaluations of val_loss, all NaN"
    assert not lines_of(found, "val_slope")
    for kind in ("terminal", "markdown", "json"):
        assert "all NaN" in render(found, kind, PLAIN)


@pytest.mark.parametrize("source", [RESNET, WHISPER, FIXTURES / "runs" / "lr_too_high"])
def test_triage_and_coverage_wait_for_the_same(source):
    found, checks = coverage(source), triage(source).checks
    skipped = [check for check in checks if check.reason == "not_recorded"]
    assert [(each.code, each.needs) for each in found.waiting] == [
        (check.code, tuple(name for each in needs_of(check) for name in each)) for check in skipped
    ]
    first = screen_of(found).partition("What to record next")[0]
    assert (f"{len(skipped)} of {found.checks} checks cannot judge" in first) == bool(skipped)
    for things, _ in most_missed(checks):
        assert all(name in screen_of(found) for name in things.split(" or "))


def test_a_rule_that_one_line_would_feed_is_told_by_its_number():
    found = coverage(WHISPER)
    freed = [each.name for each in found.waiting if each.place == 1]
    assert len(freed) > 6
    assert f"1. Lets {len(freed)} checks judge: {', '.join(freed[:6])} and {len(freed) - 6} more" in screen_of(found)
    assert f"number 1 below lets {len(freed)} of them." in screen_of(found)


def test_a_check_with_too_few_points_is_told_and_not_waited_for():
    found = coverage(FIXTURES / "runs" / "nan_batch")
    young = [(each.name, each.detail) for each in found.young]
    assert ("overfitting", "2 evaluations; 3 are needed") in young
    assert ("slice_regression", "at most 2 evaluations; 5 are needed") in young
    told = screen_of(found)
    assert "2 evaluations; 3 are needed" in told
    assert "at most 2 evaluations; 5 are needed" in told


def test_who_does_not_clip_is_not_told_to():
    found = coverage(RESNET)
    assert "grad_clip_rate" not in {name for each in found.remedies for name in each.names}
    assert "nothing says that the training clips its gradients" in screen_of(found)
    clipping = coverage_of(run_of({"train_loss_raw": [1.0]}, source="CSV", clip_norm=1.0))
    assert lines_of(clipping, "grad_clip_rate") == ["recorder.clip_grad_norm_(1.0)"]


def test_what_makes_no_sense_for_a_run_is_not_what_to_log_next():
    skipped = {check.code: check.reason for check in triage(RESNET).checks if check.outcome == "skipped"}
    assert (skipped["ATTN001"], skipped["CLM001"], skipped["GRAD001"]) == ("not_applicable", "not_applicable", "not_recorded")


def test_what_rules_would_read_besides_is_no_need():
    complete = replace(coverage(FIXTURES / "runs" / "experts_two_ranks"), young=(), waiting=())
    first, *others = complete.remedies
    telling = replace(first, readers=("LOSS001 loss_spike", "bad_batch"))
    text = screen_of(replace(complete, remedies=(telling, *others)))
    assert "Every check has the numbers that it needs; number 1 below adds evidence for loss_spike, bad_batch." in text
    assert "1. Adds evidence for loss_spike, bad_batch" in text


def test_no_names_are_made_up_and_no_claims_asked_for():
    for source in (RESNET, WHISPER):
        everything = render(coverage(source), "json", PLAIN)
        lines = [line.code for each in coverage(source).remedies for line in each.lines]
        assert not any(word in line for line in lines for word in ("spectral_norms", "causal", "train_ppl", "=count"))
        assert "claimed_value" in everything


def test_what_the_recorder_measures_by_itself_needs_no_line():
    found = coverage(FIXTURES / "runs" / "lr_too_high")
    (by_itself,) = [each for each in found.remedies if "dataloader_stall_frac" in each.names]
    assert (by_itself.lines, by_itself.where.startswith("Nothing to write")) == ((), True)
    assert lines_of(found, "spectral_norm")[0].startswith("Recorder(...")


def test_what_another_line_brings_is_not_asked_of_this_one():
    bare = coverage_of(run_of({"train_loss_raw": [1.0]}, vocabulary=10))
    assert "batch_duplicate_share" not in row(bare, "near_dup_rate").lacks
    assert "batch_duplicate_share" in row(bare, "target_shift_match").lacks
    assert "log_silence" not in row(bare, "metrics_ingest_lag").lacks
    assert "log_silence" in row(bare, "step_time").lacks


def test_the_columns_that_a_sample_needs_are_named():
    text = screen_of(coverage(HEALTHY))
    assert "source_mix_share from a column source" in text
    assert "pad_fraction from a column attention_mask" in text
    assert "filter_reject_rate from a column reject or filter" in text


def test_a_log_is_no_folder_to_add_to():
    assert "--into run/" not in " ".join(each.code for each in coverage(WHISPER).remedies)
    assert f"--into {HEALTHY}" in " ".join(each.code for each in coverage(HEALTHY).remedies)
    assert "--step 2000" in " ".join(each.code for each in coverage(HEALTHY).remedies)


def test_a_folder_that_holds_a_log_is_read_and_says_which():
    run = open_run(RESNET.parent, reads=())
    assert run.notes[0] == "found in measurements.csv"


def test_a_folder_in_which_a_run_begins_while_one_looks_is_the_run(tmp_path, monkeypatch):
    def begins(folder):
        (folder / "scalars.jsonl").write_text("")
        return False

    monkeypatch.setattr("ckaudit.audit.load_run.holds_run", begins)
    assert is_ours(tmp_path)


def test_parity_and_replay_come_last_among_equals():
    found = coverage(HEALTHY)
    level = {each.name: each.level for each in found.rows}
    lines = [each for each in found.remedies if each.lines and len(each.waiting) == 1]
    should = [each.code for each in lines if "should" in {level[name] for name in each.names}]
    assert "parity_loss_diff=" in should[-1]
    assert "replay_identical=" in lines[-1].code


@pytest.mark.parametrize(("source", "most"), [(RESNET, 160), (WHISPER, 210), (HEALTHY, 140)])
def test_it_is_no_longer_than_it_must_be(source, most):
    text = render(coverage(source), "terminal", PLAIN._replace(width=100))
    assert len(text.splitlines()) <= most
    assert all(each.name in text for each in coverage(source).missing("nice"))


def test_json_says_which_version_it_is():
    document = json.loads(render(coverage(RESNET), "json", PLAIN))
    assert document["schema_version"] == "ck.coverage.v1"
    Draft202012Validator(output_schema("ck.coverage.v1")).validate(document)
    assert document["remedies"][0]["lines"][-1]["code"] == "recorder.close()"
    assert {1, 2} <= {each["place"] for each in document["waiting"]}


def test_markdown_tells_all_that_json_does():
    found = coverage(HEALTHY)
    text = render(found, "markdown", PLAIN)
    assert all(f"`{each.name}`" in text for each in found.rows if not each.recorded)


def test_the_lines_of_a_comparison_record_it(tmp_path):
    torch = pytest.importorskip("torch")
    from ckaudit import Recorder

    model = torch.nn.Linear(2, 1)
    with Recorder(model, tmp_path / "run") as recorder:
        for action in ("parity", "replay", "benchmark", "slices"):
            recorder.step(1.0)
            exec(actions()[action].call.replace("...", "0.5"), {"recorder": recorder})
    run = read_run(tmp_path / "run")
    names = ("parity_loss_diff", "parity_param_diff", "replay_identical", "replay_loss_diff")
    values = [metrics()[name](run).values[-1].tolist() for name in names]
    assert values == [[0.5], [0.5], [0.5], [0.5]]
    assert metrics()["slice_val_loss"](run).labels == metrics()["microbench_score"](run).labels == ("NAME",)
