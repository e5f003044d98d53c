"""A watch inside a training: it says what is new once, raises only where asked, and changes nothing else."""

import logging
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import ckaudit
from ckaudit.errors import CkauditError, UsageError
from ckaudit.recorder import Recorder, Writer

ROOT = Path(__file__).parents[2]


def train(run, watch=None, *, steps=120, nan_at=None):
    """Train a small model, one batch of which may be NaN, and return its losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    with Recorder(model, run, optimizer=optimizer, warmup_steps=0) as recorder:
        for step in range(1, steps + 1):
            inputs = torch.randn(32, 8) * (math.nan if step == nan_at else 1.0)
            loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
            optimizer.zero_grad()
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss, batch=inputs)
            losses.append(loss.item())
            if watch:
                watch.step()
    return losses


def lines(run, losses, *, start=1):
    """Write losses as a run, a line each."""
    with Writer(run, start_step=start - 1) as writer:
        for step, loss in enumerate(losses, start):
            writer.step(step, loss=loss)


def broken_training(run):
    """Write an ill run, and break."""
    lines(run, [*GOOD, math.nan, math.nan])
    raise ZeroDivisionError


GOOD = [4 * 0.98**step + 0.01 * math.sin(7 * step) for step in range(100)]


def test_a_lost_training_is_stopped_within_the_steps_that_were_asked_for(tmp_path, caplog):
    watch = ckaudit.Watch(tmp_path, every=20, raise_on="sev0")
    with pytest.raises(ckaudit.UnhealthyRunError) as raised:
        train(tmp_path, watch, nan_at=65)
    assert "NUM001" in {finding.code for finding in raised.value.findings}
    assert {finding.severity for finding in raised.value.findings} == {"sev0"}
    assert min(finding.first_step for finding in raised.value.findings) == 65
    assert ckaudit.triage(tmp_path).report.step == 80
    assert isinstance(raised.value, CkauditError)
    told = [record for record in caplog.records if record.name == "ckaudit.watch" and record.levelno == logging.CRITICAL]
    assert any("NUM001" in record.getMessage() for record in told)
    assert "NUM001" in str(raised.value)


def test_without_being_asked_nothing_raises_and_each_finding_is_told_once(tmp_path, caplog):
    watch = ckaudit.Watch(tmp_path, every=20)
    losses = train(tmp_path, watch, nan_at=65)
    assert len(losses) == 120
    told = [
        record.getMessage() for record in caplog.records if record.name == "ckaudit.watch" and "NUM001" in record.getMessage()
    ]
    assert len([each for each in told if "training loss" in each]) == 1


def test_a_healthy_training_is_the_same_with_and_without_a_watch(tmp_path):
    with ckaudit.Watch(tmp_path / "a", every=10, raise_on="sev2") as watch:
        watched = train(tmp_path / "a", watch)
    assert watched == train(tmp_path / "b")


def test_the_end_of_a_context_looks_once_more_unless_the_training_raised(tmp_path):
    with pytest.raises(ckaudit.UnhealthyRunError), ckaudit.Watch(tmp_path / "a", raise_on="sev0"):
        lines(tmp_path / "a", [*GOOD, math.nan, math.nan])
    with pytest.raises(ZeroDivisionError), ckaudit.Watch(tmp_path / "b", raise_on="sev0"):
        broken_training(tmp_path / "b")


def test_what_an_earlier_session_left_behind_stops_no_later_one(tmp_path):
    lines(tmp_path, [*GOOD, math.nan, math.nan])
    with Writer(tmp_path, start_step=102) as writer:
        watch = ckaudit.Watch(tmp_path, raise_on="sev0")
        for step, loss in enumerate(GOOD, 103):
            writer.step(step, loss=loss)
        assert "NUM001" not in {finding.code for finding in watch.check()}
        for step in range(203, 206):
            writer.step(step, loss=math.inf)
        with pytest.raises(ckaudit.UnhealthyRunError):
            watch.check()


def test_the_same_illness_at_the_same_step_stops_a_run_that_was_begun_anew(tmp_path):
    lines(tmp_path, [*GOOD, math.nan, math.nan])
    with Writer(tmp_path) as writer:
        watch = ckaudit.Watch(tmp_path, raise_on="sev0")
        for step, loss in enumerate(GOOD, 1):
            writer.step(step, loss=loss)
        assert watch.check() == []
        writer.step(101, loss=math.nan)
        with pytest.raises(ckaudit.UnhealthyRunError):
            watch.check()


def test_what_is_new_is_returned_and_no_more_raised_the_second_time(tmp_path):
    watch = ckaudit.Watch(tmp_path, every=3, raise_on="sev0")
    lines(tmp_path, [*GOOD, math.nan])
    assert [watch.step(), watch.step()] == [[], []]
    with pytest.raises(ckaudit.UnhealthyRunError):
        watch.step()
    assert watch.check() == []


def test_an_auditor_that_breaks_stops_no_training(tmp_path, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("of the auditor's own")

    watch = ckaudit.Watch(tmp_path, every=20, raise_on="note")
    monkeypatch.setattr("ckaudit.watch.watcher.Watcher.poll", broken)
    assert len(train(tmp_path, watch)) == 120
    (told,) = [record.getMessage() for record in caplog.records if "of the auditor's own" in record.getMessage()]
    assert told.startswith("the audit failed and the training goes on without it")


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path):
    watch = ckaudit.Watch(tmp_path / "later", raise_on="note")
    assert watch.check() == []


@pytest.mark.parametrize(("asked", "message"), [({"every": 0}, "every 0 steps"), ({"raise_on": "sev7"}, "no severity 'sev7'")])
def test_what_makes_no_sense_is_refused(tmp_path, asked, message):
    with pytest.raises(UsageError, match=message):
        ckaudit.Watch(tmp_path, **asked)
    with pytest.raises(UsageError, match=message):
        ckaudit.LogHandler(tmp_path, **asked)
    assert not list(tmp_path.iterdir())


def test_the_examples_of_the_document_run(tmp_path, monkeypatch, caplog):
    text = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    blocks = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 2
    losses = iter([*GOOD, math.nan, *GOOD, *[math.nan] * 9])
    loader = [(torch.zeros(1), torch.zeros(1))] * 101
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(nn.Linear(1, 1), "run/")
    exec(blocks[0], {"loader": loader, "recorder": recorder, "update": lambda *_: next(losses)})
    recorder.close()
    with pytest.raises(ckaudit.UnhealthyRunError):
        exec(blocks[1], {"loader": [*loader, *loader], "update": lambda *_: next(losses)})
    (handler,) = (log := logging.getLogger("train")).handlers
    log.removeHandler(handler)
    handler.close()
