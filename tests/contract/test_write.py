import os
import subprocess
import sys

import pytest

from ckaudit.contract.io.files import CHECKPOINT_NAME, SCALARS_NAME, remove_stale, write_atomic


def test_the_file_holds_the_bytes_and_nothing_else_is_left(tmp_path):
    write_atomic(tmp_path / "a.json", b"one")
    write_atomic(tmp_path / "a.json", b"two")
    assert (tmp_path / "a.json").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_failure_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    write_atomic(tmp_path / "a.json", b"old")

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_the_name_appears_only_after_the_bytes_are_synced(tmp_path, monkeypatch):
    seen = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (seen.append((tmp_path / "a.json").exists()), sync(descriptor)))
    write_atomic(tmp_path / "a.json", b"new")
    assert seen == [False, True]


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        write_atomic(tmp_path / "nowhere" / "a.json", b"")


def test_no_reader_takes_a_temporary_file_for_one_of_the_run(tmp_path):
    for name in ("analysis_checkpoint_step_00000010.json", "scalars.jsonl"):
        temporary = f".{name}.tmp-{os.getpid()}"
        assert not CHECKPOINT_NAME.match(temporary)
        assert not SCALARS_NAME.match(temporary)


def test_leftovers_of_dead_writers_and_of_this_number_are_removed(tmp_path):
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout
    leftovers = {f".a.json.tmp-{int(dead)}", f".b.json.tmp-{os.getpid()}"}
    for name in (*leftovers, f".c.json.tmp-{os.getppid()}", "a.json", ".notes.tmp-x"):
        (tmp_path / name).touch()
    assert set(remove_stale(tmp_path)) == leftovers
    assert {path.name for path in tmp_path.iterdir()} == {f".c.json.tmp-{os.getppid()}", "a.json", ".notes.tmp-x"}
