"""`ckaudit watch` as a user runs it: real processes, exit codes, lines, and a training that is stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckaudit.cli.run import run

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def watch(*words: object, **more: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ckaudit", "watch", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        **more,
    )


def ended(process: "subprocess.Popen[str]", seconds: float = 60) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def test_runs_that_ended_well_end_with_0_and_their_lines_are_stable() -> None:
    code, out, err = ended(watch(RUNS / "healthy", RUNS / "experts_two_ranks", "--until", "sev1"))
    assert code == 0
    name, other = RUNS / "healthy", RUNS / "experts_two_ranks"
    replayed = "1 of 2 replays did not give every bit again; losses differ by up to 0.302; the first difference is at step 22"
    assert sorted(out.splitlines()) == sorted(
        [
            f"watching {name} step -: the run is watched from now on",
            f"watching {other} step -: the run is watched from now on",
            f"sev2     {other} step 400: REPLAY001 {replayed} (since step 22, replay)",
            f"ended    {name} step 2000: the run has ended",
            f"ended    {other} step 400: the run has ended",
        ]
    )
    assert f"{name}: nothing found" in err


def test_what_leaves_the_band_of_healthy_siblings_is_told() -> None:
    pairs = RUNS.parent / "pairs"
    like = ("--like", f"{pairs}/replica*", "--like", pairs / "base")
    code, out, _ = ended(watch(pairs / "lr_doubled", *like, "--until", "sev2", "--format", "jsonl"))
    findings = [event["finding"] for event in map(json.loads, out.splitlines()) if event["event"] == "finding"]
    told = {finding["code"]: finding for finding in findings}
    assert code == 1
    assert told["SIB007"]["first_step"] == 500
    assert "all 3 siblings" in told["SIB007"]["message"]


def test_a_finding_as_grave_as_asked_ends_with_1() -> None:
    code, out, _ = ended(watch(RUNS / "nan_batch", "--until", "sev0", "--format", "jsonl"))
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert {event["schema_version"] for event in events} == {"ck.watch.v1"}
    assert any(event["event"] == "finding" and event["severity"] == "sev0" for event in events)


def test_what_is_milder_does_not_end_it_and_is_not_told_to_the_command(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code, out, _ = ended(watch(RUNS / "overfit_tiny", "--until", "sev0", "--exec", f"sh -c 'echo x >> {told}'"))
    assert code == 0
    assert "sev2" in out
    assert not told.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([], "no run was named"),
        ([RUNS / "healthy", "--until", "sev7"], "unknown severity"),
        ([RUNS / "healthy", "--stall-after", "soon"], "--stall-after"),
        ([RUNS / "healthy", "--webhook", "file:///x"], "--webhook"),
        ([RUNS / "healthy", "--format", "panel"], "needs a terminal"),
        ([RUNS / "healthy" / "scalars.jsonl"], "is one file of a run"),
    ],
)
def test_where_there_is_nothing_to_watch_it_ends_with_2(
    words: list[object], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["watch", *map(str, words)]) == 2
    assert message in capsys.readouterr().err


def test_the_process_ends_with_2_where_there_is_nothing_to_watch() -> None:
    code, _, err = ended(watch("nowhere"))
    assert code == 2
    assert "nowhere does not exist" in err


def test_a_folder_that_is_yet_to_come_is_waited_for(tmp_path: Path) -> None:
    process = watch(tmp_path / "run", "--wait", "50")
    time.sleep(0.3)
    shutil.copytree(RUNS / "healthy", tmp_path / "run")
    code, out, _ = ended(process)
    assert code == 0
    assert "the run has ended" in out


def test_it_is_interrupted_with_a_last_summary(tmp_path: Path) -> None:
    (tmp_path / "scalars.jsonl").write_text("".join(f'{{"step": {step}, "train_loss_raw": "NaN"}}\n' for step in range(1, 9)))
    # What a shell starts in the background ignores the signal, and its children with it.
    process = watch(tmp_path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout is not None
    assert any("NUM001" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert f"{tmp_path}: " in err
    assert "sev0" in err


def test_a_reader_who_has_seen_enough_ends_it(tmp_path: Path) -> None:
    (tmp_path / "scalars.jsonl").write_text('{"step": 1, "train_loss_raw": "NaN"}\n')
    process = watch(tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    with (tmp_path / "scalars.jsonl").open("a") as log:
        log.writelines(f'{{"step": {step}, "train_loss_raw": "NaN"}}\n' for step in range(2, 9))
    assert process.wait(30) == 0
    assert process.stderr is not None
    process.stderr.close()


# Its loss is the logarithm of zero from step 100 on; each step takes a millisecond, or it would end before anybody looks.
TRAINING = """
import sys, time
import torch
from ckaudit.recorder import Recorder

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
with Recorder(model, sys.argv[1], optimizer=optimizer, planned_steps=100_000) as recorder:
    for step in range(1, 100_001):
        inputs = torch.randn(16, 8)
        loss = torch.nn.functional.cross_entropy(model(inputs), inputs.argmax(1) % 4)
        loss = (loss * 0).log() if step >= 100 else loss
        optimizer.zero_grad()
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss)
        time.sleep(0.001)
"""


@pytest.mark.torch
def test_a_training_that_breaks_is_stopped_before_its_last_step(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "run"
    training = subprocess.Popen([sys.executable, "-c", TRAINING, str(folder)], env=ENVIRONMENT)
    try:
        code, out, err = ended(watch(folder, "--wait", 60, "--until", "sev0", "--exec", f"kill {training.pid}"), 180)
        assert code == 1, err
        assert "sev0" in out
        assert training.wait(60) == -signal.SIGTERM
    finally:
        training.kill()
        training.wait()
    planned = json.loads((folder / "run.json").read_text())["planned_steps"]
    done = max(json.loads(line)["step"] for line in (folder / "scalars.jsonl").read_text().splitlines())
    sys.stdout.write(f"stopped at step {done} of {planned}: {1 - done / planned:.0%} of the steps were saved\n")
    assert done < planned / 2
