"""Losses that are none of a training, sums of parts, and tables between blanks: as their programs write them."""

import json

import numpy as np
import pytest
from msgspec import UNSET

from ckaudit.audit import triage
from ckaudit.importers import ImportOptions, import_source
from ckaudit.importers.trackers.points import LoggedSeries
from ckaudit.importers.trackers.tracked import TrackedRun, runs_of


def values(run, name: str) -> list[float]:
    return [row[name] for row in run.rows if name in row]


def test_the_loss_of_a_policy_is_no_training_loss_unless_it_is_named(tmp_path):
    file = tmp_path / "progress.csv"
    rows = "".join(f"{n},{n * 10},{n % 3},0.0003\n" for n in range(1, 20))
    file.write_text("time/iterations,rollout/ep_rew_mean,train/loss,train/learning_rate\n" + rows)
    run = import_source(file)
    assert values(run, "train_loss_raw") == []
    assert any("train/loss was left out: beside rewards of rollouts" in note for note in run.notes)
    assert values(import_source(file, import_options=ImportOptions(columns={"loss": "train/loss"})), "train_loss_raw")[:3] == [
        1.0,
        2.0,
        0.0,
    ]


def test_the_loss_of_a_policy_that_is_no_number_any_more_is_an_illness_like_any_other(tmp_path):
    file = tmp_path / "progress.csv"
    rows = "".join(f"{n},{n * 10},{n % 3 if n < 15 else 'nan'},0.0003\n" for n in range(1, 20))
    file.write_text("time/iterations,rollout/ep_rew_mean,train/loss,train/learning_rate\n" + rows)
    assert values(import_source(file), "train_loss_raw")[:3] == [1.0, 2.0, 0.0]
    (finding,) = [each for each in triage(file).findings if each.code == "NUM001"]
    assert (finding.severity, finding.first_step) == ("sev0", 15)


def state(folder, losses):
    """Write the state of a Trainer that trains a policy by the rewards of its completions (GRPO), and return its path."""
    rewards = {"reward": 0.5, "reward_std": 0.3, "kl": 0.001, "grad_norm": 0.2}
    history = [{"step": 10 * row, "loss": loss, **rewards} for row, loss in enumerate(losses, 1)]
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"log_history": history, "global_step": 10 * len(losses), "max_steps": 10 * len(losses)}))
    return file


def test_the_loss_of_a_policy_beside_the_spread_of_its_rewards_is_no_training_loss_unless_it_is_named(tmp_path):
    file = state(tmp_path, [0.001 * row for row in range(40)])
    run = import_source(file)
    assert (values(run, "train_loss_raw"), len(values(run, "grad_global_norm"))) == ([], 40)
    assert any("loss was left out: beside rewards of rollouts" in note for note in run.notes)
    assert triage(file).severity in (None, "note")
    assert values(import_source(file, import_options=ImportOptions(columns={"loss": "loss"})), "train_loss_raw")[:3] == [
        0.0,
        0.001,
        0.002,
    ]


def test_a_policy_of_completions_whose_loss_is_no_number_is_ill(tmp_path):
    file = state(tmp_path, [0.0] * 20 + [float("nan")] * 5)
    (finding,) = [each for each in triage(file).findings if each.code == "NUM001"]
    assert (finding.severity, finding.first_step) == ("sev0", 210)


def test_epochs_of_yolo_that_were_not_evaluated_have_no_validation_loss(tmp_path):
    file = tmp_path / "results.csv"
    rows = "".join(f"{n},{3 / n:.4f},{1 / n:.4f},{0 if n % 2 else 2 / n:.4f},0,0.5,0.01\n" for n in range(1, 7))
    file.write_text("epoch,train/box_loss,train/cls_loss,val/box_loss,val/cls_loss,metrics/mAP50(B),lr/pg0\n" + rows)
    run = import_source(file)
    assert values(run, "val_loss") == [1.0, 0.5, 0.3333]
    assert values(run, "train_loss_raw")[:2] == [4.0, 2.0]
    assert any("exactly 0 at 3 epochs" in note for note in run.notes)


def test_the_error_of_training_of_deepmd(tmp_path):
    file = tmp_path / "lcurve.out"
    head = "#  step      rmse_val    rmse_trn    rmse_e_val  rmse_e_trn         lr\n"
    first = "      0      1.05e+01    1.02e+01      4.7e-01     4.6e-01    1.0e-03\n"
    second = "    100      2.10e+00    2.44e+00      2.7e-02     2.4e-02    9.0e-04\n"
    file.write_text(head + first + second + " 200 1\n")
    run = import_source(file)
    assert run.source == "DeePMD-kit lcurve.out"
    assert [row["step"] for row in run.rows] == [0, 100]
    assert values(run, "train_loss_raw") == [10.2, 2.44]
    assert values(run, "val_loss") == [10.5, 2.1]
    assert run.manifest.loss_kind == "other"
    assert any("1 lines are not as wide" in note for note in run.notes)


GAME = [(1 + (step * 7 % 5) / 100, 0.5 + (step * 3 % 4) / 100) for step in range(1, 301)]


def written(folder, ending, names, rows):
    """Write rows as a table or as JSON lines, with steps from 1."""
    file = folder / f"log.{ending}"
    if ending == "csv":
        lines = [",".join(["step", *names]), *(",".join(map(str, [step, *row])) for step, row in enumerate(rows, 1))]
    else:
        lines = [json.dumps({"step": step, **dict(zip(names, row, strict=True))}) for step, row in enumerate(rows, 1)]
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("names", [("g_loss", "d_loss"), ("Loss_G", "Loss_D"), ("train/gen_loss", "train/critic_loss")])
def test_losses_that_play_against_each_other_are_read_as_their_sum_and_need_not_fall(tmp_path, ending, names):
    file = written(tmp_path, ending, names, GAME)
    run = import_source(file)
    assert values(run, "train_loss_raw") == pytest.approx([sum(pair) for pair in GAME])
    assert run.manifest.takes_turns is True
    assert any(f"{names[0]} + {names[1]}, which play against each other" in note for note in run.notes)
    report = triage(file)
    assert (report.findings, report.judged) == ([], "limited")
    outcomes = {check.code: check.reason or check.outcome for check in report.checks}
    assert [outcomes[code] for code in ("LOSS003", "LOSS004", "NUM001")] == ["not_applicable", "not_applicable", "passed"]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_either_of_two_losses_that_is_no_number_is_told(tmp_path, ending):
    rows = [(first, second if step < 200 else float("nan")) for step, (first, second) in enumerate(GAME, 1)]
    found = triage(written(tmp_path, ending, ("g_loss", "d_loss"), rows)).findings
    assert [(each.code, each.severity, each.first_step) for each in found] == [("NUM001", "sev0", 200)]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_discriminator_that_is_sure_of_everything_is_found(tmp_path, ending):
    rows = [(first, second) if step < 100 else (20 + first, second / 1e4) for step, (first, second) in enumerate(GAME, 1)]
    found = triage(written(tmp_path, ending, ("g_loss", "d_loss"), rows)).findings
    assert [(each.code, each.severity, each.first_step) for each in found if each.severity != "note"] == [
        ("LOSS013", "sev2", 100)
    ]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(("kl", "codes"), [(9.0, []), (1e-5, ["LOSS012"])])
def test_a_code_that_tells_nothing_is_found_by_its_divergence(tmp_path, ending, kl, codes):
    rows = [(100 + 60 / step + step % 3 + kl, 100 + 60 / step + step % 3, kl + 3 / step**3) for step in range(1, 301)]
    report = triage(written(tmp_path, ending, ("loss", "recon_loss", "kld"), rows))
    assert [each.code for each in report.findings if each.severity != "note"] == codes


def test_the_divergence_of_a_policy_is_none_of_a_code(tmp_path):
    rows = [(0.1, 0.01, 5.0) for _ in range(100)]
    run = import_source(written(tmp_path, "csv", ("recon_loss", "kl", "episode_reward"), rows))
    assert not any(name.startswith("loss_part") for row in run.rows for name in row)


def test_one_of_two_losses_that_is_named_is_read_alone(tmp_path):
    file = written(tmp_path, "csv", ("g_loss", "d_loss"), GAME)
    run = import_source(file, import_options=ImportOptions(columns={"loss": "g_loss"}))
    assert values(run, "train_loss_raw") == [first for first, _ in GAME]
    assert run.manifest.takes_turns is True


def test_a_tracker_s_losses_that_play_against_each_other_are_added_at_the_steps_of_both():
    def series(steps, values):
        return LoggedSeries(np.array(steps), np.array(values), np.full(len(steps), np.nan), np.arange(len(steps)))

    tracked = TrackedRun("a", {"g_loss": series([1, 2, 3], [1.0, 2.0, 3.0]), "d_loss": series([1, 3], [0.5, 0.25])})
    (run,) = runs_of([tracked], {}, "store", "tracker")
    assert [(row["step"], row.get("train_loss_raw")) for row in run.rows] == [(1, 1.5), (2, None), (3, 3.25)]
    assert [row["loss_part/generator"] for row in run.rows] == [1.0, 2.0, 3.0]
    assert run.manifest.takes_turns is True


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("names", [("loss", "episode_reward"), ("policy_loss", "lr"), ("td_loss", "lr")])
def test_tables_and_json_lines_leave_out_the_loss_of_a_policy_unless_it_is_no_number(tmp_path, ending, names):
    rows = [(step % 3, 0.5) for step in range(1, 40)]
    fine = written(tmp_path, ending, (*names, "grad_norm"), [(*row, 1.0) for row in rows])
    run = import_source(fine)
    assert values(run, "train_loss_raw") == []
    assert run.manifest.takes_turns is UNSET
    assert any(f"{names[0]} was left out: " in note for note in run.notes)
    broken = written(
        tmp_path, ending, names, [(loss if step < 20 else float("nan"), other) for step, (loss, other) in enumerate(rows)]
    )
    losses = {row["step"]: row["train_loss_raw"] for row in import_source(broken).rows if "train_loss_raw" in row}
    assert min(step for step, loss in losses.items() if loss != loss) == 21


def test_rewards_of_a_test_make_the_loss_beside_them_that_of_a_policy(imported):
    text = "".join(
        f"Epoch #{n}: 10001it [00:11, 893.13it/s, env_step={n}0000, len=25, loss=0.{n}94, n/ep=0, rew=23.33]\n"
        f"Epoch #{n}: test_reward: {20.5 + n} ± 0.507153, best_reward: {20.5 + n} ± 0.000000 in #{n}\n"
        for n in range(1, 8)
    )
    run = imported(text, "dqn.log")
    assert [row["microbench_score/test_reward"] for row in run.rows] == [20.5 + n for n in range(1, 8)]
    assert not any("train_loss_raw" in row for row in run.rows)
    assert any("loss was left out: beside rewards of rollouts" in note for note in run.notes)
