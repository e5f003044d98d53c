"""One run under watch, through what happens to run folders: cuts, resumes, stalls, ends, and a policy."""

import json
import shutil
from datetime import date
from pathlib import Path

from ckaudit.audit import triage
from ckaudit.contract.schema.report import SEVERITIES
from ckaudit.contract.schema.watch import WatchEvent
from ckaudit.policy.acceptance import AcceptanceCriteria
from ckaudit.policy.baseline import Baseline, accepted
from ckaudit.watch.announcer import ClockReading
from ckaudit.watch.growing_run import MAX_VALUES, NEWEST_VALUES, OLDER_VALUES
from ckaudit.watch.watcher import Watcher

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


def write(run: Path, steps: range, *, session: int = 0, loss: float | str = 2.0, start: float = 0.0) -> None:
    """Add lines to a log: one step a second."""
    run.mkdir(exist_ok=True)
    with (run / "scalars.jsonl").open("a") as log:
        for step in steps:
            row = {"step": step, "time": start + step, "session": session, "train_loss_raw": loss, "learning_rate": 1e-3}
            log.write(json.dumps(row) + "\n")


def manifest(run: Path, *sessions: dict) -> None:
    run.mkdir(exist_ok=True)
    (run / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "sessions": list(sessions)}))


def looks(watcher: Watcher, *moments: float, wall: float = 0.0) -> list[WatchEvent]:
    return [event for now in moments for event in watcher.poll(ClockReading(now, wall))]


def told(events: list[WatchEvent]) -> list[tuple[str, str | None]]:
    return [(event.event, event.finding.code if event.finding else None) for event in events]


def test_a_run_ends_when_its_last_session_does_and_goes_on_when_another_begins(tmp_path: Path) -> None:
    manifest(tmp_path, {"start": 0.0})
    write(tmp_path, range(1, 20))
    watcher = Watcher(tmp_path)
    assert told(looks(watcher, 0.0, 1.0)) == []
    manifest(tmp_path, {"start": 0.0, "end": 20.0})
    assert told(looks(watcher, 2.0, 3.0)) == [("ended", None)]
    assert watcher.ended
    manifest(tmp_path, {"start": 0.0, "end": 20.0}, {"start": 30.0})
    looks(watcher, 4.0)
    assert not watcher.ended


def test_a_resume_that_goes_back_replaces_what_was_and_its_findings_are_told(tmp_path: Path) -> None:
    write(tmp_path, range(1, 40))
    watcher = Watcher(tmp_path)
    assert told(looks(watcher, 0.0)) == []
    write(tmp_path, range(20, 45), session=1)
    looks(watcher, 100.0)
    assert watcher.step == 44
    write(tmp_path, range(45, 47), session=1, loss="NaN")
    assert ("finding", "NUM001") in told(looks(watcher, 101.0))


def test_a_log_that_is_cut_is_read_again_and_nothing_is_told_twice(tmp_path: Path) -> None:
    write(tmp_path, range(1, 30))
    write(tmp_path, range(30, 33), loss="NaN")
    watcher = Watcher(tmp_path)
    assert ("finding", "NUM001") in told(looks(watcher, 0.0))
    lines = (tmp_path / "scalars.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "scalars.jsonl").write_text("".join(lines[:31]))
    events = looks(watcher, 1000.0, 2000.0)
    assert told(events) == [("anew", None)]
    assert watcher.step == 31


def test_a_training_that_begins_anew_in_the_folder_is_judged_anew(tmp_path: Path) -> None:
    write(tmp_path, range(1, 300))
    write(tmp_path, range(300, 303), loss="NaN")
    watcher = Watcher(tmp_path)
    looks(watcher, 0.0)
    (tmp_path / "scalars.jsonl").unlink()
    (tmp_path / "scalars.jsonl").touch()
    write(tmp_path, range(1, 5))
    looks(watcher, 1000.0, 1001.0)
    write(tmp_path, range(5, 7), loss="NaN")
    assert ("finding", "NUM001") in told(looks(watcher, 2000.0))


def test_silence_is_a_stall_once_until_lines_come_again(tmp_path: Path) -> None:
    write(tmp_path, range(1, 20))
    watcher = Watcher(tmp_path, stall_after=60)
    assert told(looks(watcher, 0.0, 59.0, wall=19.0)) == []
    events = looks(watcher, 61.0, 62.0)
    assert told(events) == [("stall", "WATCH001")]
    assert events[0].severity == "sev1"
    assert watcher.state == "stalled"
    write(tmp_path, range(20, 22))
    assert told(looks(watcher, 63.0, wall=21.0)) == [("resumed", None)]


def test_a_run_that_ended_does_not_stall(tmp_path: Path) -> None:
    manifest(tmp_path, {"start": 0.0, "end": 20.0})
    write(tmp_path, range(1, 20))
    assert told(looks(Watcher(tmp_path, stall_after=1), 0.0, 1000.0)) == [("ended", None)]


def test_what_a_baseline_accepts_is_not_told(tmp_path: Path) -> None:
    whole = looks(Watcher(RUNS / "nan_batch"), 0.0, wall=4e9)
    entries = [accepted(event.finding, "triage", None) for event in whole if event.finding is not None]
    criteria = AcceptanceCriteria(baseline=Baseline(file="known.json", entries=entries), today=date(2030, 1, 1))
    assert told(looks(Watcher(RUNS / "nan_batch", criteria=criteria), 0.0, 1.0, wall=4e9)) == [("ended", None)]


def test_what_was_wrong_before_the_watch_began_is_told_however_long_ago(tmp_path: Path) -> None:
    write(tmp_path, range(1, 100))
    write(tmp_path, range(100, 400), loss="NaN")
    write(tmp_path, range(400, 3 * MAX_VALUES))
    codes = sorted(each.code for each in triage(tmp_path).findings if each.severity != "note")
    assert "NUM001" in codes
    assert sorted(code or "" for _, code in told(looks(Watcher(tmp_path), 0.0))) == codes


def test_memory_is_bounded_and_a_late_finding_of_a_long_run_is_told(tmp_path: Path) -> None:
    write(tmp_path, range(1, 2 * MAX_VALUES))
    watcher = Watcher(tmp_path)
    before = [code for _, code in told(looks(watcher, 0.0)) if code]
    for part in range(2, 5):
        write(tmp_path, range(part * MAX_VALUES, (part + 1) * MAX_VALUES))
        assert told(looks(watcher, part * 1000.0)) == []
    (log,) = watcher._history.reader.log.sessions.values()
    assert sum(len(steps) for steps, _ in log.numbers["train_loss_raw"].joined()) <= MAX_VALUES + NEWEST_VALUES + OLDER_VALUES
    write(tmp_path, range(5 * MAX_VALUES, 5 * MAX_VALUES + 3), loss="NaN")
    events = looks(watcher, 9000.0)
    assert "NUM001" not in before
    assert told(events)[0] == ("finding", "NUM001")
    assert events[0].finding is not None
    assert events[0].finding.first_step == 5 * MAX_VALUES


def test_each_kind_of_contradiction_in_checkpoints_is_told_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUNS / "healthy", run)
    for file in run.glob("analysis_checkpoint_*"):
        file.unlink()
    watcher, events = Watcher(run, stall_after=1e9), []
    for number, step in enumerate((10, 20, 30)):
        document = {"schema_version": "ck.analysis.v1", "step": step, "loss": 2.0, "triggers": ["cadence", "cadence"]}
        (run / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
        events += looks(watcher, 1000.0 * number, 1000.0 * number + 500)
    codes = [code for _, code in told(events) if code]
    assert codes.count("VAL072") == 1
    assert all(event.severity in (*SEVERITIES, None) for event in events)
