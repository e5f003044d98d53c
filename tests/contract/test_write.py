import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ckaudit.contract.io import files
from ckaudit.contract.io.files import CHECKPOINT_NAME, SCALARS_PATTERN, remove_stale, write_atomic


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


def test_threads_that_write_one_file_leave_one_of_their_texts_whole(tmp_path):
    texts = [bytes([65 + number]) * 50_000 for number in range(4)]

    def write(text):
        for _ in range(30):
            write_atomic(tmp_path / "a.json", text)
            assert (tmp_path / "a.json").read_bytes() in texts

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, texts))
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        write_atomic(tmp_path / "nowhere" / "a.json", b"")


def test_no_reader_takes_a_temporary_file_for_one_of_the_run(tmp_path):
    for name in ("analysis_checkpoint_step_00000010.json", "scalars.jsonl"):
        temporary = f".{name}.tmp-{os.getpid()}"
        assert not CHECKPOINT_NAME.match(temporary)
        assert not SCALARS_PATTERN.match(temporary)


def test_leftovers_of_dead_writers_and_of_this_number_are_removed(tmp_path):
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout
    leftovers = {f".a.json.tmp-{int(dead)}", f".b.json.tmp-{os.getpid()}"}
    for name in (*leftovers, f".c.json.tmp-{os.getppid()}", "a.json", ".notes.tmp-x"):
        (tmp_path / name).touch()
    assert set(remove_stale(tmp_path)) == leftovers
    assert {path.name for path in tmp_path.iterdir()} == {f".c.json.tmp-{os.getppid()}", "a.json", ".notes.tmp-x"}


def test_a_link_that_stands_in_the_place_of_the_temporary_file_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    taken = next(files._NUMBERS) + 1
    (tmp_path / f".run.json.{taken}.tmp-{os.getpid()}").symlink_to(victim)
    write_atomic(tmp_path / "run.json", b"{}")
    assert victim.read_text() == "mine"
    assert (tmp_path / "run.json").read_bytes() == b"{}"
    assert not (tmp_path / "run.json").is_symlink()


def test_the_mode_of_what_is_replaced_stays_and_a_new_file_has_that_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"1")
        (tmp_path / "b").write_bytes(b"1")
        (tmp_path / "b").chmod(0o604)
        write_atomic(tmp_path / "b", b"2")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o604


def test_the_longest_name_that_a_file_may_have_can_be_written(tmp_path):
    path = tmp_path / ("é" * 125 + "." + "json")
    write_atomic(path, b"{}")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
