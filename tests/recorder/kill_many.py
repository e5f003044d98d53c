"""Kills trainings at random moments and looks at what they leave: `python tests/recorder/kill_many.py 200`."""

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import torch
from torch import nn

from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import Cadence, Manifest
from ckaudit.recorder import Recorder


def train_for_ever(folder: Path, start: int, suffix: str, started: int) -> None:
    """Train until killed; a byte goes to the descriptor `started` before the first step."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    cadence = [Cadence(until=None, every=2)]
    recorder = Recorder(model, folder, optimizer=optimizer, start_step=start, cadence=cadence, suffix=suffix)
    os.write(started, b"!")
    while True:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss)


def train_and_kill(folder: Path, seconds: float, *, start: int = 0, suffix: str = ".json") -> None:
    """Train into a folder in a process of its own, and send it SIGKILL so long after its first step could begin."""
    waiting, started = os.pipe()
    process = os.fork()
    if not process:
        try:
            train_for_ever(folder, start, suffix, started)
        finally:
            os._exit(1)
    os.close(started)
    assert os.read(waiting, 1) == b"!"
    os.close(waiting)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def what_is_left(folder: Path) -> tuple[int, int]:
    """Decode everything that a reader would; return the numbers of lines and of checkpoints.

    Every checkpoint and run.json must be whole, every line of a due step must have its checkpoint, and no line but the
    last may be torn or missing.
    """
    paths = sorted(folder.glob("analysis_checkpoint_*"))
    for path in paths:
        found = msgspec.json.decode(read_bytes(path, path.name), type=Checkpoint)
        assert found.step == int(path.name[25:33]), path.name
        assert found.weights, path.name
    msgspec.json.decode((folder / "run.json").read_bytes(), type=Manifest)
    *whole, _torn = (folder / "scalars.jsonl").read_bytes().split(b"\n") if (folder / "scalars.jsonl").exists() else [b""]
    steps = [json.loads(line)["step"] for line in whole]
    assert steps == list(range(1, len(steps) + 1))
    assert set(range(0, len(steps) + 1, 2)) <= {int(path.name[25:33]) for path in paths}
    return len(steps), len(paths)


def kill_many(count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Kill `count` trainings, every second one after a resume, and return what each left."""
    chance, left = random.Random(seed), []
    for number in range(count):
        suffix = (".json", ".json.gz", ".json.zst")[number % 3]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            train_and_kill(folder, chance.uniform(0, 0.15), suffix=suffix)
            lines, _ = what_is_left(folder)
            if number % 2:
                train_and_kill(folder, chance.uniform(0, 0.15), start=lines, suffix=suffix)
            left.append(what_is_left(folder))
            print(f"{number + 1}: {left[-1][0]} lines, {left[-1][1]} checkpoints", flush=True)  # noqa: T201
    return left


if __name__ == "__main__":
    torch.set_num_threads(1)  # before the first fork: a forked process has no threads but one
    torch.optim.AdamW(nn.Linear(1, 1).parameters())  # imports a second's worth of torch, once instead of in every fork
    kill_many(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
