"""Trainings that record to a real S3 server, over lines that break, and in processes that are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import repeat
from pathlib import Path
from time import monotonic, sleep

import pytest
import torch

from ckaudit.cli.run import run
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder.files import log_segments, uploader
from ckaudit.recorder.files.uploader import CLOSE_PATIENCE, PAUSE
from ckaudit.remote import filesystem
from ckaudit.remote.spool import DEFAULT_GB, spool_of
from tests.forked import Started, training
from tests.object_storage import Fault, Proxy, forget_clients, s3, s3_server  # noqa: F401
from tests.recorder.kill_many import what_is_left

ROOT = Path(__file__).parents[2]
EVERY = [Cadence(until=None, every=2)]


@pytest.fixture(autouse=True)
def spool_here(tmp_path, monkeypatch):
    monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "spools"))
    monkeypatch.setattr(uploader, "PAUSE", 0.05)
    monkeypatch.setattr(filesystem, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(uploader, "pauses", lambda *_, **__: repeat(0.05))
    monkeypatch.setattr(uploader, "CLOSE_PATIENCE", 30)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}  # the server's own


def arguments_of(address, start_step=0, steps=0, end="close"):
    return "tests.recorder.spooled", address, str(start_step), str(steps), end


def test_a_line_that_breaks_all_the_time_and_comes_back_loses_nothing(s3, tiny, train, monkeypatch):  # noqa: F811
    address = s3.uri("runs/nano")

    def fault(method, path, count):
        return {1: Fault(reset=True), 2: Fault(busy=True), 3: Fault(delay=0.2)}.get(count)

    with Proxy(s3.endpoint, fault) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        recorded, bare = tiny(), tiny()
        train(recorded, 20, address, cadence=EVERY)
        train(bare, 20)
        assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), recorded.parameters(), strict=True))
    assert files(s3.folder / "runs" / "nano") == files(spool_of(address).run)
    assert len(files(spool_of(address).run)) == 14


def test_a_connection_that_is_lost_for_a_while_costs_nothing(s3, tiny, train, monkeypatch):  # noqa: F811
    address, lost = s3.uri("nano"), [False]
    with Proxy(s3.endpoint, lambda *_: Fault(reset=True) if lost[0] else None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        recorder = train(tiny(), 10, address, cadence=EVERY, close=False)
        lost[0] = True
        for _ in range(40):
            recorder.step(1.0)
        lost[0] = False
        recorder.close()
    assert files(s3.folder / "nano") == files(spool_of(address).run)
    assert len(files(s3.folder / "nano")["scalars.jsonl"].splitlines()) == 50


@pytest.mark.parametrize("again", ["here", "on another machine"])
def test_a_killed_training_leaves_a_run_that_a_restart_goes_on_with(s3, tmp_path, monkeypatch, again):  # noqa: F811
    address, folder = s3.uri("nano"), s3.folder / "nano"
    process = Started(*arguments_of(address), out=tmp_path / "steps", **os.environ)
    end = monotonic() + 60
    while not (folder / "scalars.jsonl").exists() and monotonic() < end:
        sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    lines, checkpoints = what_is_left(folder)  # whole files, and the checkpoint of every line
    assert checkpoints > lines / 2 > 0
    if again == "here":
        assert run(["push", "-q"]) == 0
        lines_here, _ = what_is_left(folder)
        assert lines_here >= lines
        lines = lines_here
    else:
        monkeypatch.setenv("CKAUDIT_SPOOL", str(tmp_path / "another"))
    done = training(*arguments_of(address, start_step=lines, steps=10), **os.environ)
    assert (done.returncode, done.stdout.split()[-1]) == (0, str(lines + 10)), done.stderr
    assert what_is_left(folder)[0] == lines + 10
    assert len(json.loads((folder / "run.json").read_bytes())["sessions"]) == 2
    there, here = files(folder), files(spool_of(address).run)
    assert there == here | {name: data for name, data in there.items() if again != "here" and name not in here}


def test_the_end_of_the_program_closes_a_recorder_that_was_left_open(s3):  # noqa: F811
    address = s3.uri("nano")
    command = [sys.executable, "-m", *arguments_of(address, steps=20, end="leave")]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120)
    assert files(s3.folder / "nano") == files(spool_of(address).run)
    assert json.loads((s3.folder / "nano" / "run.json").read_bytes())["sessions"][0]["end"]


def test_a_wrong_key_is_told_and_a_right_one_puts_everything_up(s3, tiny, train, monkeypatch, caplog, capfd):  # noqa: F811
    address = s3.uri("nano")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        train(tiny(), 10, address, cadence=EVERY)
    assert "does not take the run: PermissionError" in caplog.text
    assert "AWS_SECRET_ACCESS_KEY" in caplog.text
    assert not (s3.folder / "nano").exists()
    forget_clients()
    assert run(["push", address]) == 0
    assert files(s3.folder / "nano") == files(spool_of(address).run)
    assert "put up" in capfd.readouterr().err


def test_an_address_is_judged_as_its_local_copy_is(s3, tiny, train, capfd):  # noqa: F811
    address = s3.uri("nano")
    train(tiny(), 60, address, cadence=EVERY, vocabulary=17, sequence_length=8)
    reports = []
    for name in (address, str(spool_of(address).run)):
        code = run(["triage", name, "--format", "json"])
        report = json.loads(capfd.readouterr().out.replace(name, "RUN"))
        reports.append((code, report))
    assert reports[0] == reports[1]


def test_the_page_on_object_storage_says_what_is_done(s3, tiny, train):  # noqa: F811
    page = (ROOT / "docs" / "object-storage.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    model = tiny()
    given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    exec(block.replace("s3://bucket", f"s3://{s3.name}"), given)
    given["recorder"].step(1.0)
    given["recorder"].close()
    assert files(s3.folder / "runs" / "nano") == files(spool_of(s3.uri("runs/nano")).run)
    text = " ".join(page.split())
    assert f"until nothing has been uploaded for {CLOSE_PATIENCE:g} seconds" in text
    assert f"uploads what is new there every {PAUSE:g} seconds" in text
    assert f"a log beyond {log_segments.SEGMENT_BYTES // 2**20} MB" in text
    assert f"Together they keep to {DEFAULT_GB:g} GB" in text
