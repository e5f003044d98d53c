import errno
import os
import stat
import threading
from functools import partial
from time import perf_counter

import pytest
import torch

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder, Writer
from ckaudit.recorder.distributed import tensor_access
from ckaudit.recorder.files import run_folder as folder
from ckaudit.recorder.files.background import Background
from ckaudit.recorder.model import collector


def weights_of(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_trained_alike(tiny, train, broken):
    bare = tiny()
    train(bare, 25)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), broken.parameters(), strict=True))


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_stops_files_and_not_the_training(tiny, train, tmp_path, monkeypatch, manifest, caplog):
    model = tiny()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        patch.setattr(os, "write", full_disk)
        recorder = train(model, 25, tmp_path, close=False)
        recorder._session._folder.wait_for_writes()
    recorder.close()
    assert_trained_alike(tiny, train, model)
    session = manifest(tmp_path).sessions[-1]
    assert session.checkpoint_ok is False
    assert session.write_errors >= 25
    assert session.look_errors == 0
    assert "No space left on device" in session.first_write_error
    assert caplog.text.count("No space left") < 8
    assert not list(tmp_path.glob(".*"))


def test_a_disk_that_was_full_for_a_while_costs_only_that_while(tiny, train, batches, tmp_path, monkeypatch, lines, steps_of):
    recorder = train(tiny(), 5, tmp_path, close=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        patch.setattr(os, "write", full_disk)
        for _ in range(10):
            recorder.step(1.0)
    for _ in range(10):
        recorder.step(1.0)
    recorder.close()
    assert [line["step"] for line in lines(tmp_path)] == [*range(1, 26)]
    assert set(steps_of(tmp_path)) - {10} == {0, 20, 25}  # that of step 10 may have been written after the disk had room


def test_a_disk_that_does_not_answer_holds_nothing_up(tiny, train, tmp_path, monkeypatch, lines, steps_of, caplog):
    monkeypatch.setattr("ckaudit.recorder.files.run_folder.Background", partial(Background, room=100_000, stuck_after=0.1))
    recorder, answers, started = train(tiny(), 5, tmp_path, close=False), threading.Event(), perf_counter()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: answers.wait(60))
        for _ in range(95):
            recorder.step(1.0)
        assert perf_counter() - started < 30
        written = len(lines(tmp_path))
        answers.set()
        recorder.close()
    assert written < 100
    assert [line["step"] for line in lines(tmp_path)] == [*range(1, 101)]
    assert {0, 10, 20} <= set(steps_of(tmp_path)) < {*range(0, 101, 10)}
    assert "has not taken what came before" in caplog.text


@pytest.mark.parametrize("obstacle", ["file", "readonly", "vanishes"])
@pytest.mark.usefixtures("no_waits")
def test_a_folder_that_cannot_be_written_leaves_the_training_alone(tiny, train, tmp_path, obstacle):
    run, model = tmp_path / "run", tiny()
    if obstacle == "file":
        run.touch()
    if obstacle == "readonly":
        run.mkdir()
        run.chmod(stat.S_IRUSR | stat.S_IXUSR)
    recorder = train(model, 25, run, close=False)
    if obstacle == "vanishes":
        run.rename(tmp_path / "elsewhere")
    recorder.close()
    assert_trained_alike(tiny, train, model)
    assert recorder._guard.failures > 0 or (obstacle == "readonly" and os.geteuid() == 0)


@pytest.mark.parametrize(
    ("module", "name"),
    [(collector, "weight_stats"), (tensor_access, "movement"), (tensor_access, "take_norms"), (collector, "optimizer_state")],
)
def test_a_section_that_fails_leaves_the_others(tiny, train, tmp_path, monkeypatch, read, module, name):
    def fail(*_args, **_kwargs):
        raise RuntimeError("broken")

    monkeypatch.setattr(module, name, fail)
    model = tiny()
    recorder = train(model, 25, tmp_path)
    assert_trained_alike(tiny, train, model)
    found = read(tmp_path, 10)
    missing = {"weight_stats": "weights", "movement": "weight_deltas", "take_norms": "gradients", "optimizer_state": "optimizer"}[
        name
    ]
    for section in ("weights", "weight_deltas", "gradients", "optimizer", "activations", "attention"):
        assert bool(getattr(found, section)) == (section != missing), section
    assert recorder._guard.failures > 0


def test_a_hook_that_fails_leaves_the_other_modules(tiny, train, tmp_path, monkeypatch, read):
    from ckaudit.recorder.hooks import forward_hooks

    def fail(*_args, **_kwargs):
        raise RuntimeError("broken")

    monkeypatch.setattr(forward_hooks, "attention_stats", fail)
    model = tiny()
    train(model, 25, tmp_path)
    assert_trained_alike(tiny, train, model)
    found = read(tmp_path, 10)
    assert found.activations
    assert not found.attention["layer.0"].entropy_per_head
    assert found.attention["layer.0"].max_logit_per_head


def test_an_optimizer_without_hooks_still_has_a_learning_rate(tiny, batches, tmp_path, lines):
    class Plain:
        def __init__(self, parameters):
            self.param_groups = [{"params": list(parameters), "lr": 0.25}]
            self.state = {}

    model = tiny()
    with Recorder(model, tmp_path, optimizer=Plain(model.parameters())) as recorder:
        for _ in range(3):
            recorder.step(1.0)
    assert [(line["learning_rate"], line["steps_seen"]) for line in lines(tmp_path)] == [(0.25, 1), (0.25, 2), (0.25, 3)]


def test_strange_models_are_recorded_too(tmp_path, read):
    model = torch.nn.Module()
    model.complex = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    model.empty = torch.nn.Parameter(torch.zeros(0, 4))
    model.scalar = torch.nn.Parameter(torch.tensor(2.0))
    model.whole = torch.nn.Parameter(torch.arange(4), requires_grad=False)
    recorder = Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(10):
        recorder.step(1.0)
    recorder.close()
    assert recorder._guard.failures == 0
    assert set(read(tmp_path, 10).weights) == {"complex", "empty", "scalar", "whole"}
    name = "analysis_checkpoint_step_00000010.json"
    assert check_checkpoint((tmp_path / name).read_bytes(), name).findings == []


def test_another_process_does_not_close_the_run(tiny, tmp_path, monkeypatch):
    recorder = Recorder(tiny(), tmp_path)
    recorder.step(1.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    recorder.close()
    assert b'"end"' not in (tmp_path / "run.json").read_bytes()
    assert folder.checkpoint_file_name(1) not in {path.name for path in tmp_path.iterdir()}


def test_a_system_that_starts_no_thread_holds_no_step_up_and_is_asked_again(tiny, train, tmp_path, monkeypatch, caplog):
    recorder = train(tiny(), 5, tmp_path, close=False)
    recorder._session._folder._background.close()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        begun = perf_counter()
        for _ in range(30):
            recorder.step(1.0)
        assert perf_counter() - begun < 2.0
    for _ in range(30):
        recorder.step(1.0)
    recorder.close()
    assert "can't start new thread" in caplog.text
    assert (tmp_path / "analysis_checkpoint_step_00000060.json").exists()


def test_lines_that_wait_for_a_slow_disk_are_written_at_once_behind_their_checkpoint(tmp_path, monkeypatch):
    answers, asked, writes, write, sync = threading.Event(), threading.Event(), [], os.write, os.fsync
    with Writer(tmp_path, cadence=[Cadence(until=None, every=40)]) as writer:
        monkeypatch.setattr(os, "write", lambda descriptor, data: (writes.append(data), write(descriptor, data))[1])
        monkeypatch.setattr(os, "fsync", lambda descriptor: (asked.set(), answers.wait(60), sync(descriptor)))
        writer.checkpoint(0, weights={})
        assert asked.wait(60)
        for step in range(1, 101):
            writer.step(step, loss=1.0)
            if writer.is_due(step):
                writer.checkpoint(step, weights={})
        assert writes == []
        answers.set()
    assert [data.count(b"\n") for data in writes] == [40, 40, 20]
    assert {0, 40, 80} <= {int(path.name[25:33]) for path in tmp_path.glob("analysis_*")}
