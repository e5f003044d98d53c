"""What is no log is refused with a reason, and folders give their latest state."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import import_source, importers
from ckaudit.importers.importer import Source
from ckaudit.validate import validate


def test_formats_with_a_mark_of_their_own_are_asked_first():
    assert [each.GENERIC for each in importers()] == sorted(each.GENERIC for each in importers())
    assert "CSV" in [each.NAME for each in importers() if each.GENERIC]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html><body>Sign in, please</body></html>", "web page"),
        (b"\n  <HTML>", "web page"),
        (b"PAR1\0\0\0", "Parquet file that cannot be read"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary"),
        (b"PK\x03\x04\0\0", "is a zip archive"),
        (b"BZh91AY\0", "is packed with bzip2"),
        (b"step\0loss\n1\0002", "binary"),
        (b'{"loss": 1}', "a JSON document of another kind"),
        (b"[1, 2]", "no log that is known"),
        (b"Dear all, the run went fine.\nYours, B\n", f"expected one of {len(importers())} formats"),
        (b"epoch 10 of 100 took 3 s\n" * 9, "no log that is known"),
        (b"1,2,3\n2,3,4\n", "no log that is known"),
        (b"\xff\xfe\xfa", "no log that is known"),
    ],
)
def test_what_is_no_log_is_refused_with_the_reason(imported, content, reason):
    with pytest.raises(UnreadableError, match=reason) as raised:
        imported(content, "whatever.log")
    assert raised.value.hint


def test_a_file_that_is_not_there_is_unreadable(tmp_path):
    with pytest.raises(UnreadableError, match="cannot be opened"):
        import_source(tmp_path / "none.csv")


def test_a_packed_file_is_unpacked(imported):
    assert imported(gzip.compress(b"step,loss\n1,2\n"), "log.csv.gz").rows == [{"step": 1, "train_loss_raw": 2.0}]


def test_zeros_that_a_power_cut_left_at_the_end_are_no_text(imported):
    assert imported(b"step,loss\n1,2\0\0\0\0").rows == [{"step": 1, "train_loss_raw": 2.0}]


def test_the_content_decides_and_not_the_name(imported):
    assert imported(b"step\tloss\n1\t2\n", "metrics.txt").source == "CSV"
    assert imported(b'{"log_history": [{"step": 1, "loss": 2}]}', "x.csv").source == "Hugging Face trainer_state.json"


def _state(path: Path, steps: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    history = [{"step": step, "loss": 2.0} for step in range(1, steps + 1)]
    (path / "trainer_state.json").write_text(json.dumps({"global_step": steps, "max_steps": 9, "log_history": history}))


def test_a_folder_gives_its_own_state_else_that_of_its_latest_checkpoint(tmp_path):
    for steps in (2, 9, 10):
        _state(tmp_path / f"checkpoint-{steps}", steps)
    assert len(import_source(tmp_path).rows) == 10
    _state(tmp_path, 12)
    assert len(import_source(tmp_path).rows) == 12
    assert any("a later" in note for note in import_source(tmp_path / "checkpoint-2").notes)


def test_a_folder_without_a_state_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match=f"a folder in which no log is known: expected one of {len(importers())} formats"):
        import_source(tmp_path)


def test_long_foreign_names_are_cut_in_notes(imported):
    run = imported(f"step,loss,{'x' * 5000}\n1,2,3\n")
    assert max(map(len, run.notes)) < 300


def test_the_search_for_files_ends(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.log").write_text("1")
    assert [name for name, _ in Source(tmp_path).files(max_files=9)] == ["a/x.log", "b/x.log"]
    assert [name for name, _ in Source(tmp_path).files(max_files=1)] == ["a/x.log"]
    assert [name for name, _ in Source(tmp_path).files(max_files=9, part_of_name="y")] == []
    monkeypatch.setattr("ckaudit.importers.importer.MAX_SEEN", 1)
    assert [name for name, _ in Source(tmp_path).files(max_files=9)] == ["a/x.log"]


@pytest.mark.parametrize(
    ("kind", "what"),
    [("zip", "a zip archive"), ("tar", "a tar archive"), ("gztar", "a tar archive"), ("bztar", "packed with bzip2")],
)
def test_an_archive_is_told_by_its_name_and_is_to_be_unpacked(tmp_path: Path, kind: str, what: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "scalars.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    archive = shutil.make_archive(str(tmp_path / "packed"), kind, run)
    with pytest.raises(UnreadableError, match=f"is {what}") as raised:
        import_source(Path(archive))
    assert "Unpack it" in raised.value.hint
    assert f"The file is {what}." in [finding.message for finding in validate([Path(archive)]).findings]


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "a/../../x", "loop/x", "gone"])
def test_a_name_out_of_a_file_may_be_any(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    assert Source(tmp_path).inside(name) is None
