"""The functions follow the policy that the command line follows: rules, columns, severities, terms of the gate."""

import json
import logging
import shutil
from pathlib import Path

import pytest

import ckaudit
from ckaudit.errors import UsageError
from tests import in_process

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
ILL, HEALTHY = RUNS / "lr_too_high", RUNS / "healthy"
POLICY = """
fail_on = "sev2"
[severities]
LOSS001 = "note"
[[ignore]]
code = "GRAD*"
reason = "known"
[thresholds.loss_spike]
k = 9.0
[import.map]
loss = "my nll"
step = "iteration"
[gate]
questions = ["speed"]
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder below that of a policy, in which we work, with a log whose columns it names."""
    (tmp_path / "ckaudit.toml").write_text(POLICY)
    folder = tmp_path / "work"
    folder.mkdir()
    rows = (f"{step},{3 + 0.01 * (step % 7) if step < 70 else 'nan'}" for step in range(1, 100))
    (folder / "log.csv").write_text("iteration,my nll\n" + "\n".join(rows) + "\n")
    (folder / "log2.csv").write_text("iteration,my nll\n" + "\n".join(f"{step},{3 - 0.01 * step}" for step in range(1, 100)))
    monkeypatch.chdir(folder)
    return folder


def printed_json(*arguments: str) -> dict[str, object]:
    """Return what the command line says here, as JSON."""
    done = in_process.ckaudit(*arguments, "--format", "json", cwd=Path.cwd())
    return json.loads(done.stdout)


@pytest.mark.parametrize("run", [str(ILL), "log.csv"])
def test_triage_follows_the_policy_of_the_folder(team: Path, run: str) -> None:
    audit = ckaudit.triage(run)
    assert audit.to_dict() == printed_json("triage", run)
    assert audit.report.policy is not None
    assert audit.report.policy.file == "../ckaudit.toml"
    free = ckaudit.triage(run, policy=False, columns={"loss": "my nll"} if run == "log.csv" else None)
    assert free.report.policy is None
    if run == str(ILL):
        assert {found.code for found in audit.findings} < {found.code for found in free.findings}


def test_metrics_diff_gate_and_validate_follow_it_too(team: Path) -> None:
    assert ckaudit.metrics("log.csv", "train_loss_raw").to_dict() == printed_json("metrics", "log.csv", "train_loss_raw")
    assert ckaudit.diff("log2.csv", "log.csv").to_dict() == printed_json("diff", "log2.csv", "log.csv")
    gated = ckaudit.gate(ILL, HEALTHY)
    assert gated.to_dict() == printed_json("gate", str(ILL), "--against", str(HEALTHY))
    assert (gated.outcome, ckaudit.gate(ILL, HEALTHY, policy=False).outcome) == ("passed", "failed")
    assert ckaudit.validate(ILL).to_dict() == printed_json("validate", str(ILL))


def test_a_policy_can_be_named(team: Path) -> None:
    other = team / "strict.toml"
    other.write_text('fail_on = "note"\n')
    assert ckaudit.triage(ILL, policy=other).to_dict() == printed_json("triage", str(ILL), "--config", str(other))
    assert ckaudit.triage(ILL, policy=False).to_dict() == printed_json("triage", str(ILL), "--no-config")
    with pytest.raises(UsageError, match=r"policy: there is no file nowhere\.toml"):
        ckaudit.triage(ILL, policy="nowhere.toml")


def test_what_fails_a_test_is_what_the_policy_says(team: Path) -> None:
    with pytest.raises(AssertionError):
        ckaudit.assert_healthy("log.csv")
    (team / "ckaudit.toml").write_text('select = ["LOSS001"]\n')
    assert not ckaudit.assert_healthy(HEALTHY).fails()
    (team / "ckaudit.toml").write_text("[thresholds.loss_spike]\nwindows = 7\n")
    with pytest.raises(UsageError, match="loss_spike has no such threshold"):
        ckaudit.assert_healthy(HEALTHY)


def test_a_threshold_under_its_old_name_is_a_warning(team: Path) -> None:
    (team / "ckaudit.toml").write_text("[thresholds.barely_moving]\nslow = 1e-6\n")
    with pytest.warns(FutureWarning, match="min_relative_movement"):
        ckaudit.triage(HEALTHY)


def test_a_watch_tells_only_what_the_policy_lets_count(team: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = shutil.copytree(ILL, team / "run")
    manifest = json.loads((run / "run.json").read_text())
    del manifest["sessions"][-1]["end"]  # it is still under way
    (run / "run.json").write_text(json.dumps(manifest))
    with caplog.at_level(logging.INFO, logger="ckaudit.watch"):
        named = {found.code for found in ckaudit.Watch(run, policy=team.parent / "ckaudit.toml").check()}
        here = {found.code for found in ckaudit.Watch(run).check()}
        free = {found.code for found in ckaudit.Watch(run, policy=False).check()}
    assert named == here < free
    assert not any(code.startswith("GRAD") for code in here)
    (team / "ckaudit.toml").write_text("selec = []\n")
    with pytest.raises(UsageError, match="unknown key selec"):
        ckaudit.Watch(run)
    with pytest.raises(UsageError, match="unknown key"):
        ckaudit.LogHandler(team / "new")
    assert not (team / "new").exists()
