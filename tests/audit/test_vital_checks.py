"""What a verdict says of how much it saw."""

import json
from pathlib import Path

import pytest

from ckaudit.audit.engine import triage
from ckaudit.audit.vital_checks import VITAL, judged
from ckaudit.cli.run import run
from ckaudit.metrics import metrics
from ckaudit.rules import rules

HEALTHY = Path(__file__).parents[2] / "fixtures/runs/healthy"


def test_each_vital_check_rests_on_rules_and_metrics_that_exist():
    for vital in VITAL:
        assert set(vital.rules) <= set(rules())
        assert set(vital.metrics) <= set(metrics()) | {"overflow_rate", "attn_entropy"}
        assert set(vital.remedies) == {"recorder", "huggingface", "lightning", "files", "log"}


def test_a_run_of_our_recorder_is_judged_whole():
    report = triage(HEALTHY)
    assert (report.judged, report.to_judge_more) == ("all", None)
    assert report.verdict.startswith("Nothing wrong")


def _log(folder, rows):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _falling(count, name="loss"):
    return [{"step": 10 * step, name: 2 + 6 / step} for step in range(1, count + 1)]


def test_a_plain_log_is_limited_and_says_what_is_missing(tmp_path):
    report = triage(_log(tmp_path, _falling(200)))
    assert (report.judged, report.severity) == ("limited", None)
    outcomes = {check.name: check.outcome for check in report.vital}
    assert {outcomes["loss_finite"], outcomes["loss_steady"]} == {"judged"}
    assert {outcomes["validation"], outcomes["weights_move"]} == {"not_judged"}
    assert "vital checks could not judge: no validation loss" in report.verdict


def test_a_log_of_a_trainer_is_told_in_words_of_the_trainer(tmp_path):
    history = [{"step": row["step"], "loss": row["loss"], "learning_rate": 1e-4, "epoch": 0.1} for row in _falling(60)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "global_step": 600, "max_steps": 600}))
    remedies = {check.name: check.remedy for check in triage(path).vital}
    assert "eval_strategy" in remedies["validation"]
    assert "RecorderCallback" in remedies["weights_move"]


def test_files_of_another_program_are_told_in_fields(tmp_path):
    for step in range(1, 30):
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": 5 - step / 10}
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    remedies = {check.name: check.remedy for check in triage(tmp_path).vital}
    assert "weight_deltas" in remedies["weights_move"]


def test_statistics_of_the_weights_show_whether_they_move(tmp_path):
    for row in range(1, 30):
        weights = {"blocks.0.mlp.up": {"mean": 0.00173645 + row * 1.1e-6, "std": 0.02173645 + row * 1.3e-5}}
        document = {"schema_version": "ck.analysis.v1", "step": 50 * row, "loss": 5 - row / 10, "weights": weights}
        (tmp_path / f"analysis_checkpoint_step_{50 * row:08d}.json").write_text(json.dumps(document))
    outcomes = {check.name: check.outcome for check in triage(tmp_path).vital}
    assert outcomes["weights_move"] == "judged"


def test_a_loss_that_was_left_out_is_offered(tmp_path):
    rows = [{**row, "cost": 1.0, "lr": 1e-3} for row in _falling(60, "step objective")]
    report = triage(_log(tmp_path, rows))
    assert report.judged == "nothing"
    assert report.to_judge_more == "--map 'loss=step objective' would take step objective for the training loss"
    assert "no training loss" in report.verdict


@pytest.mark.parametrize(("names", "code"), [(["lr"], 2), (["lr", "loss"], 0), (["lr", "step_time"], 0)])
def test_a_log_that_no_vital_check_can_judge_does_not_pass(tmp_path, capsysbinary, names, code):
    rows = [{"step": step, **dict.fromkeys(names, 1 / (step + 10))} for step in range(1, 60)]
    assert run(["triage", str(_log(tmp_path, rows)), "--no-config"]) == code
    told = capsysbinary.readouterr()
    assert (b"NOT JUDGED" in told.out) is (b"nothing could be judged: 9 of 9 vital checks" in told.err) is (code == 2)
    assert run(["triage", str(tmp_path / "log.jsonl"), "--no-config", "--allow-empty"]) == 0


def test_a_return_that_is_kept_is_judged_though_no_loss_tells_of_learning(tmp_path, capsysbinary):
    rows = [{"step": step, "rollout/ep_rew_mean": 10 + step % 3 + step / 5, "train/loss": 0.1} for step in range(1, 60)]
    assert run(["triage", str(_log(tmp_path, rows)), "--no-config"]) == 0
    assert b"LIMITED  No illness seen" in capsysbinary.readouterr().out


def test_the_loss_of_a_policy_asks_for_no_training_loss(tmp_path):
    report = triage(_log(tmp_path, [{"step": step, "policy_loss": 0.1, "lr": 1e-3} for step in range(1, 60)]))
    assert report.judged == "nothing"
    assert "loss" not in (report.to_judge_more or "")


@pytest.mark.parametrize("name", ["training nll", "train/nll", "ce", "train_cross_entropy"])
def test_common_names_of_a_cross_entropy_are_the_loss(tmp_path, name):
    assert triage(_log(tmp_path, _falling(60, name))).state["train_loss_raw"] == pytest.approx(2.1)


def test_a_record_that_no_rule_can_judge_is_nothing():
    assert judged([], []) == "nothing"


@pytest.mark.parametrize(("rows", "code"), [(_falling(200), 2), ([{"step": 1, "loss": 5.0}], 2)])
def test_a_limited_audit_does_not_pass_where_vital_checks_are_required(tmp_path, rows, code):
    assert run(["triage", str(_log(tmp_path, rows)), "--require", "vital"]) == code


def test_a_whole_audit_passes_where_vital_checks_are_required():
    assert run(["triage", str(HEALTHY), "--require", "vital"]) == 0


def test_a_policy_requires_vital_checks(tmp_path):
    (tmp_path / "ckaudit.toml").write_text('require = "vital"\n')
    arguments = ["triage", str(_log(tmp_path, _falling(200))), "--config", str(tmp_path / "ckaudit.toml")]
    assert run(arguments) == 2
    assert run([*arguments[:2], "--no-config"]) == 0
