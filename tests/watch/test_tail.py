"""Logs and folders that grow, are cut, renamed and rotated: nothing is lost, nothing is read twice."""

import json
import os
import shutil
from pathlib import Path

import pytest

from ckaudit.watch.growing_run import Logs, ShrunkError
from ckaudit.watch.watcher import FolderPoller


def line(step: int, loss: float = 2.0) -> str:
    return json.dumps({"step": step, "train_loss_raw": loss}) + "\n"


def read(logs: Logs, *paths: Path) -> list[int]:
    """Return the steps of what was added to some logs."""
    return [json.loads(text)["step"] for path in paths for piece in logs.added(path) for text in piece.data.decode().splitlines()]


def test_only_what_is_new_is_read_and_a_torn_line_is_waited_for(tmp_path: Path) -> None:
    log, logs = tmp_path / "scalars.jsonl", Logs()
    log.write_text(line(1) + line(2))
    assert read(logs, log) == [1, 2]
    assert read(logs, log) == []
    with log.open("a") as stream:
        stream.write(line(3)[:7])
    assert read(logs, log) == []
    with log.open("a") as stream:
        stream.write(line(3)[7:] + line(4))
    assert read(logs, log) == [3, 4]


def test_lines_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    log, logs = tmp_path / "scalars.jsonl", Logs()
    log.write_text(line(1) + line(2))
    assert [piece.first for piece in logs.added(log)] == [1]
    with log.open("a") as stream:
        stream.write(line(3))
    assert [piece.first for piece in logs.added(log)] == [3]


def test_a_log_that_was_rotated_goes_on_under_its_new_name(tmp_path: Path) -> None:
    log, older, logs = tmp_path / "scalars.jsonl", tmp_path / "scalars.0001.jsonl", Logs()
    log.write_text(line(1) + line(2))
    assert read(logs, log) == [1, 2]
    with log.open("a") as stream:
        stream.write(line(3))
    log.rename(older)
    log.write_text(line(4))
    assert read(logs, older, log) == [3, 4]
    assert read(logs, older, log) == []


@pytest.mark.parametrize("after", [line(9), line(9) + line(10) + line(11) + line(12)], ids=["shorter", "longer"])
def test_a_log_that_was_cut_and_written_anew_is_noticed(after: str, tmp_path: Path) -> None:
    log, logs = tmp_path / "scalars.jsonl", Logs()
    log.write_text(line(1) + line(2))
    assert read(logs, log) == [1, 2]
    with log.open("r+") as stream:
        stream.truncate()
        stream.write(after)
    with pytest.raises(ShrunkError):
        read(logs, log)


def checkpoint(folder: Path, step: int, *, loss: float = 2.0) -> Path:
    path = folder / f"analysis_checkpoint_step_{step:08d}.json"
    path.write_text(json.dumps({"schema_version": "ck.analysis.v1", "step": step, "loss": loss}))
    return path


def test_a_new_checkpoint_is_taken_when_it_rests(tmp_path: Path) -> None:
    poller = FolderPoller(tmp_path)
    path = checkpoint(tmp_path, 10)
    now = path.stat().st_mtime
    assert poller.poll(0.0, now).checkpoints == []
    path.write_text(path.read_text() + "\n")
    assert poller.poll(0.5, now).checkpoints == []
    assert [file.step for file in poller.poll(1.0, now).checkpoints] == [10]
    assert poller.poll(1.5, now).checkpoints == []


def test_checkpoints_that_were_there_before_are_taken_at_once_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (100, 20):
        checkpoint(tmp_path, step)
    found = FolderPoller(tmp_path).poll(0.0, tmp_path.stat().st_mtime + 10)
    assert [file.step for file in found.checkpoints] == [20, 100]


def test_a_checkpoint_that_a_resume_renames_asks_to_read_again(tmp_path: Path) -> None:
    poller = FolderPoller(tmp_path)
    path = checkpoint(tmp_path, 10)
    wall = path.stat().st_mtime + 10
    assert poller.poll(0.0, wall).restart_reason == ""
    path.rename(tmp_path / "analysis_checkpoint_step_00000010.session001.json")
    os.utime(tmp_path, ns=(1, 1))
    assert "renamed or deleted" in poller.poll(0.5, wall).restart_reason


def test_a_checkpoint_that_is_written_anew_asks_to_read_again(tmp_path: Path) -> None:
    poller = FolderPoller(tmp_path)
    path = checkpoint(tmp_path, 10)
    wall = path.stat().st_mtime + 10
    poller.poll(0.0, wall)
    checkpoint(tmp_path, 10, loss=3.25)
    assert "written anew" in poller.poll(0.5, wall).restart_reason


def test_a_file_system_that_keeps_the_old_time_of_a_folder_is_listed_all_the_same(tmp_path: Path) -> None:
    poller = FolderPoller(tmp_path)
    before = tmp_path.stat()
    assert poller.poll(0.0, 0.0).checkpoints == []
    checkpoint(tmp_path, 10)
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert poller.poll(1.0, 0.0).checkpoints == []
    assert [file.step for now in (31.0, 31.5) for file in poller.poll(now, 0.0).checkpoints] == [10]


def test_a_folder_that_is_away_for_a_moment_is_not_forgotten(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "scalars.jsonl").write_text(line(1))
    poller = FolderPoller(run)
    poller.poll(0.0, 0.0)
    assert len(list(poller.pieces())) == 1
    shutil.move(run, tmp_path / "away")
    poller.poll(1.0, 0.0)
    assert list(poller.pieces()) == []
    shutil.move(tmp_path / "away", run)
    with (run / "scalars.jsonl").open("a") as log:
        log.write(line(2))
    poller.poll(2.0, 0.0)
    assert [piece.first for piece in poller.pieces()] == [2]
