"""Trainings whose files, threads and clocks fail: nothing reaches them, no step waits, and what is lost is told."""

import pytest

from ckaudit.recorder.files.background import Background
from ckaudit.recorder.files.scalar_log import ScalarLogWriter
from tests.faults.layer import LASTS, Fault
from tests.faults.plans import Plan, plan
from tests.faults.trials import trial

# Each of them broke something once.
FOUND = {
    "a line half written, which cannot be cut off": (4, Fault("write", "short", 3, 3), Fault("truncate", "EIO", 3, 3)),
    "run.json of earlier starts cannot be read at first": (4, Fault("open", "EMFILE", 0, 2)),
    "the folder cannot be made at first": (0, Fault("mkdir", "ENOSPC", 0, 3)),
    "run.json cannot be written at first": (0, Fault("replace", "EIO", 0, 2)),
    "no thread can be started": (0, Fault("thread", "", 0, LASTS)),
    "a write that does not come back": (0, Fault("write", "hang", 2, LASTS)),
    "a disk that is slow": (4, Fault("write", "slow", 0, LASTS), Fault("fsync", "slow", 0, LASTS)),
    "the last writes fail twice": (4, Fault("write", "EACCES", 10, LASTS, 2)),
    "names cannot be changed at the end": (4, Fault("replace", "EMFILE", 10, 10, 2)),
    "lines written together in part": (0, Fault("write", "short", 3, 9), Fault("truncate", "EROFS", 3, 9)),
    "a calendar that goes back": (4, Fault("clock", "back", 4, LASTS)),
}


def check(folder, drawn, asked=()):
    outcome = trial(drawn, folder / "trial", asked=asked)
    assert outcome.wrong == [], drawn
    return outcome


@pytest.mark.parametrize(
    ("kind", "first", "count"), [("inline", 0, 240), ("folder", 300, 30), ("writer", 400, 20), ("address", 500, 10)]
)
def test_no_fault_reaches_a_training_or_tears_a_file(tmp_path, kind, first, count):
    injected = sum(
        check(tmp_path, plan(seed, kind), ["validate"][: seed % 10 == 0]).injected.total() for seed in range(first, first + count)
    )
    assert injected > count


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("kind", ["writer", "address", "recorder"])
def test_what_broke_a_recorder_once(tmp_path, name, kind):
    earlier, *faults = FOUND[name]
    drawn = Plan(seed=0, kind=kind, steps=10, every=5, earlier=earlier, suffix=".json", faults=tuple(faults))
    assert check(tmp_path, drawn, ["validate", "triage"]).injected.total()


def test_a_trial_sees_a_step_that_writes_by_itself_and_a_line_that_is_lost(tmp_path, monkeypatch):
    drawn = Plan(seed=0, kind="folder", steps=10, every=5, earlier=0, suffix=".json", faults=())
    monkeypatch.setattr(Background, "submit", lambda _self, _what, job, **_: job())
    assert any("a step waited for" in wrong for wrong in trial(drawn, tmp_path / "trial").wrong)
    monkeypatch.undo()
    monkeypatch.setattr(ScalarLogWriter, "write", lambda _self, _line: None)
    assert trial(drawn, tmp_path / "trial").wrong
