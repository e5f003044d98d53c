"""How much could be judged is said with every verdict: triage in all formats, watch, gate and diff."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from ckaudit.cli.run import run

SHORT = "vital checks could not judge: no validation loss, no gradient norm"


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    """Two logs with a loss that falls, and nothing else."""
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 200))
    for name, each in zip("ab", noise, strict=True):
        losses = 1 + 2 * np.exp(-np.arange(200) / 40) + each
        rows = [f"{step},{loss:.5f}" for step, loss in enumerate(losses, 1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,train_loss", *rows]) + "\n")
    return tmp_path / "a.csv", tmp_path / "b.csv"


def run_command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = run([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_every_format_of_triage_says_limited(logs, capsys):
    terminal = run_command(capsys, "triage", logs[0])[1]
    assert terminal.startswith("LIMITED  No illness seen up to step 200, but 6 of 9 vital checks")
    assert "**LIMITED**" in run_command(capsys, "triage", logs[0], "-f", "markdown")[1]
    report = json.loads(run_command(capsys, "triage", logs[0], "-f", "json")[1])
    assert report["judged"] == "limited"
    assert report["to_judge_more"]
    suite = ET.fromstring(run_command(capsys, "triage", logs[0], "-f", "junit")[1]).find("testsuite[@name='vital']")
    assert suite.get("skipped") == str(sum(each["outcome"] != "judged" for each in report["vital"]))
    sarif = json.loads(run_command(capsys, "triage", logs[0], "-f", "sarif")[1])
    told = [each["message"]["text"] for each in sarif["runs"][0]["invocations"][0]["toolConfigurationNotifications"]]
    assert any("Not judged: no validation loss" in each for each in told)
    assert any(each.startswith("to judge more: ") for each in told)
    assert "but 6 of 9 vital checks" in run_command(capsys, "triage", logs[0], "-f", "github")[1]


def test_the_page_of_a_report_says_limited(logs, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run_command(capsys, "report", logs[0], "-o", page)[0] == 0
    text = page.read_text()
    assert '<span class="badge sev2">limited</span>' in text
    assert "but 6 of 9 vital checks could not judge" in text


def test_a_note_does_not_hide_that_little_could_be_judged(tmp_path, capsys):
    log = tmp_path / "log.csv"
    losses = 1 + 2 * np.exp(-np.arange(200) / 40)
    rows = [f"{step},{loss:.5f},{5e-6 if step == 3 else 1e-7}" for step, loss in enumerate(losses, 1)]
    log.write_text("\n".join(["step,train_loss,parity_loss_diff", *rows]) + "\n")
    code, out, _ = run_command(capsys, "triage", log, "-v")
    assert code == 0
    assert out.startswith("LIMITED")
    assert "PARITY001" in out


def test_vital_checks_can_be_required(logs, capsys):
    assert run_command(capsys, "triage", logs[0])[0] == 0
    code, _, err = run_command(capsys, "triage", logs[0], "--require", "vital")
    assert code == 2
    assert "--require vital" in err


def test_a_comparison_says_of_each_side_what_could_not_be_judged(logs, capsys):
    pair = json.loads(run_command(capsys, "diff", *logs, "-f", "json")[1])["pairs"][0]
    assert SHORT in pair["left_limits"]
    assert pair["left_limits"] == pair["right_limits"]
    assert [note for note in pair["notes"] if "no illness seen in the" in note and SHORT in note]
    health = next(each for each in pair["answers"] if each["question"] == "health")
    assert health["message"].endswith("as far as could be judged: not every vital check could, of the first and the second")
    assert "no illness seen in the second, but 6 of 9 vital checks" in " ".join(run_command(capsys, "diff", *logs)[1].split())


def test_a_gate_says_it_of_the_canary_and_does_not_open_where_all_is_required(logs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run_command(capsys, "gate", logs[1], "--against", logs[0], "-f", "json")
    assert code == 0
    assert "Of the canary 6 of 9 vital checks could not judge" in json.loads(out)["verdict"]
    code, out, _ = run_command(capsys, "gate", logs[1], "--against", logs[0], "-f", "json", "--require", "vital")
    assert code == 2
    assert json.loads(out)["gate"]["outcome"] == "incomparable"
    (tmp_path / "ckaudit.toml").write_text('require = "vital"\n')
    assert run_command(capsys, "gate", logs[1], "--against", logs[0])[0] == 2


def ended_run(folder: Path) -> Path:
    """A run folder of another program whose last session has ended."""
    folder.mkdir()
    sessions = [{"start": 1.0, "end": 2.0}]
    (folder / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "source": "train.c", "sessions": sessions}))
    losses = 1 + 2 * np.exp(-np.arange(200) / 40)
    lines = [{"step": step, "train_loss_raw": round(float(loss), 5)} for step, loss in enumerate(losses, 1)]
    (folder / "scalars.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return folder


def test_a_watch_says_at_its_end_what_could_not_be_judged(tmp_path, capsys):
    folder = ended_run(tmp_path / "run")
    code, out, err = run_command(capsys, "watch", folder, "--format", "jsonl")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["event"], last["judged"]) == (0, "ended", "limited")
    assert SHORT in last["limits"]
    assert last["to_judge_more"]
    assert "no illness seen, but" in last["message"]
    assert "no illness seen, last told at step 200; 6 of" in err
    assert "to judge more: " in err
    assert run_command(capsys, "watch", folder, "--format", "text", "--require", "vital")[0] == 2


def lightning_log(folder: Path) -> Path:
    (folder / "metrics.csv").write_text(
        "epoch,step,train_loss\n" + "".join(f"0,{step},{3 - step / 100}\n" for step in range(10, 210, 10))
    )
    return folder / "metrics.csv"


def trainer_state(folder: Path) -> Path:
    history = [{"step": step, "loss": 3 - step / 100, "learning_rate": 1e-4, "epoch": step / 100} for step in range(10, 210, 10)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 200, "max_steps": 200}))
    return folder / "trainer_state.json"


def seed_files(folder: Path) -> Path:
    for step in range(0, 200, 20):
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": 3 - step / 100}
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    return folder


def plain_csv(folder: Path) -> Path:
    (folder / "log.csv").write_text("step,train_loss\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(10, 210, 10)))
    return folder / "log.csv"


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (trainer_state, "callbacks=[ckaudit.recorder.huggingface.RecorderCallback"),
        (lightning_log, "callbacks=[ckaudit.recorder.lightning.RecorderCallback"),
        (seed_files, 'write "val_loss" in the lines of scalars.jsonl'),
        (plain_csv, "attach ckaudit.Recorder(model"),
    ],
)
def test_what_would_let_most_judge_is_said_in_the_words_of_whoever_wrote_it(write, words, tmp_path, capsys):
    out = run_command(capsys, "triage", write(tmp_path), "--no-pictures")[1]
    assert out.startswith("LIMITED")
    assert words in " ".join(out.split()).partition("To judge more: ")[2]
