"""Two recorders of one folder, one after the other began or both at once, in one process and in two."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.schema.manifest import Cadence, Manifest
from ckaudit.recorder import Writer

WEIGHTS = {"blocks.0.weight": np.linspace(-1, 1, 16).reshape(4, 4)}


def record(folder, steps, start=0):
    with Writer(folder, start_step=start, cadence=[Cadence(until=None, every=5)]) as writer:
        for step in range(start + 1, start + steps + 1):
            writer.step(step, loss=1.0 / step)
            if writer.is_due(step):
                writer.checkpoint(step, weights=WEIGHTS)


def assert_whole(folder, lines):
    """Check that every file is whole, and that no line is torn."""
    for path in folder.iterdir():
        if CHECKPOINT_NAME.match(path.name):
            assert check_checkpoint(path.read_bytes(), path.name).findings == []
    msgspec.json.decode((folder / "run.json").read_bytes(), type=Manifest)
    assert len([json.loads(line) for line in (folder / "scalars.jsonl").read_text().splitlines()]) == lines
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_the_end_of_a_start_that_another_has_taken_over_from_takes_its_session_not_away(tmp_path):
    old = Writer(tmp_path, name="old")
    for step in range(1, 11):
        old.step(step, loss=1.0)
    old._folder.wait_for_writes()
    with Writer(tmp_path, start_step=10, name="new") as new:
        new.step(11, loss=1.0)
        new._folder.wait_for_writes()
        old.close()
    found = msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=Manifest)
    assert found.name == "new"
    assert [session.end is not msgspec.UNSET for session in found.sessions] == [True, True]
    assert found.sessions[1].resumed_from == 10


def test_two_writers_at_once_in_one_process_tear_nothing(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(record, tmp_path, 60) for _ in range(2)]:
            future.result()
    assert_whole(tmp_path, 120)


def test_two_processes_at_once_tear_nothing(tmp_path):
    code = f"from tests.faults.test_two_writers import *; record(Path({str(tmp_path)!r}), 200)"
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2]) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert_whole(tmp_path, 400)
