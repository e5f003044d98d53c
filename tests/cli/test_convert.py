"""`ckaudit convert`: which files it writes, which it refuses to touch, and what it says."""

import json
import os

import pytest

from ckaudit.cli.run import run
from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.files import read_bytes
from ckaudit.validate import validate
from tests.contract.test_convert import TEXT

GOOD = {"schema_version": "ck.analysis.v1", "loss": 1.0, "weights": {"a": {"sampled_grid_32x32": [[0.0, 1.0], [0.25, 1.0]]}}}


def name(step, suffix=".json"):
    return f"analysis_checkpoint_step_{step:08d}{suffix}"


@pytest.fixture
def folder(tmp_path):
    """A run with two checkpoints, one that is history, and everything else that a run has."""
    path = tmp_path / "nano"
    path.mkdir()
    for step in (0, 10):
        (path / name(step)).write_bytes(encode(GOOD | {"step": step}))
    (path / name(20, ".session000.json.gz")).write_bytes(encode(GOOD | {"step": 20}, ".json.gz"))
    (path / "scalars.jsonl").write_bytes(b'{"step":1,"train_loss_raw":1.0}\n')
    (path / "run.json").write_bytes(b'{"schema_version":"ck.run.v1","name":"nano"}')
    (path / "reference.npz").write_bytes(b"\x00\x01")
    (path / "notes.txt").write_text("mine")
    return path


def files(path):
    return {each.name: each.read_bytes() for each in path.iterdir()}


def test_a_run_folder_becomes_a_run_folder(folder, tmp_path, capfd):
    out = tmp_path / "small"
    assert run(["convert", str(folder), "-o", str(out), "--grids", "q8", "--suffix", ".json.zst"]) == 0
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    assert stderr.startswith(f"wrote 6 of 6 files to {out}: ")
    names = {
        name(0, ".json.zst"),
        name(10, ".json.zst"),
        name(20, ".session000.json.zst"),
        "scalars.jsonl",
        "run.json",
        "reference.npz",
    }
    assert set(files(out)) == names
    assert all(files(out)[each] == files(folder)[each] for each in ("scalars.jsonl", "run.json", "reference.npz"))
    grid = json.loads(read_bytes(out / name(10, ".json.zst"), "x"))["weights"]["a"]["sampled_grid_32x32"]
    assert (grid["encoding"], grid["min"], grid["max"]) == ("q8", 0.0, 1.0)
    assert not [finding for finding in validate([out]).findings if finding.severity == "sev1"]


def test_without_a_suffix_each_file_keeps_its_own(folder, tmp_path):
    run(["convert", str(folder), "-o", str(tmp_path / "out"), "--grids", "none", "-q"])
    assert {name(10), name(20, ".session000.json.gz")} <= set(files(tmp_path / "out"))


def test_single_files_and_several_folders_find_their_places(folder, tmp_path):
    (tmp_path / "single.json").write_bytes(TEXT)
    out = tmp_path / "out"
    assert run(["convert", str(folder), str(tmp_path / "single.json"), "-o", str(out), "--grids", "q8"]) == 0
    assert {each.name for each in out.iterdir()} == {"nano", "single.json"}
    assert name(10) in files(out / "nano")


def test_a_broken_file_is_told_and_the_others_are_written(folder, tmp_path, capfd):
    (folder / name(10)).write_bytes(b'{"schema_version": "ck.analysis.v1", "st')
    (folder / name(30)).symlink_to("/etc/hostname")
    assert run(["convert", str(folder), "-o", str(tmp_path / "out")]) == 1
    stderr = capfd.readouterr().err
    assert f"error: {name(10)}: " in stderr
    assert f"error: {name(30)}: the file is a link that leads out of the folder" in stderr
    assert "wrote 5 of 7 files" in stderr
    assert {name(10), name(30)}.isdisjoint(files(tmp_path / "out"))


def test_nothing_but_broken_files_could_not_be_done(tmp_path, capfd):
    (tmp_path / "x.json").write_bytes(b"{")
    assert run(["convert", str(tmp_path / "x.json"), "-o", str(tmp_path / "out")]) == 2
    assert "error: " in capfd.readouterr().err
    assert run(["convert", str(tmp_path / "missing.json"), "-o", str(tmp_path / "out")]) == 2
    assert "cannot be opened" in capfd.readouterr().err


def test_nothing_is_replaced_without_force(folder, tmp_path, capfd):
    out = tmp_path / "out"
    out.mkdir()
    (out / name(10, ".json.zst")).write_bytes(b"old")
    (out / "mine.txt").write_text("mine")
    assert run(["convert", str(folder), "-o", str(out)]) == 2
    assert "would be replaced\nhint: name a new folder, or allow it with --force" in capfd.readouterr().err
    assert files(out) == {name(10, ".json.zst"): b"old", "mine.txt": b"mine"}
    assert run(["convert", str(folder), "-o", str(out), "--force"]) == 0
    assert name(10) in files(out)
    assert name(10, ".json.zst") not in files(out)
    assert (out / "mine.txt").read_text() == "mine"


def test_a_run_is_never_converted_into_itself(folder, capfd):
    before = files(folder)
    for target in (folder, folder.parent / "nano" / ".." / "nano"):
        assert run(["convert", str(folder), "-o", str(target), "--force", "--grids", "none"]) == 2
        assert "cannot be converted into itself" in capfd.readouterr().err
    assert files(folder) == before


def test_a_single_file_can_be_converted_where_it_stands_by_force(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(TEXT)
    assert run(["convert", str(path), "-o", str(tmp_path), "--grids", "none"]) == 2
    assert path.read_bytes() == TEXT
    assert run(["convert", str(path), "-o", str(tmp_path), "--grids", "none", "--force"]) == 0
    assert "sampled_grid_32x32" not in json.loads(path.read_bytes())["weights"]["a"]


def test_two_files_of_one_name_are_not_written_over_each_other(tmp_path, capfd):
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "x.json").write_bytes(TEXT)
    sources = [str(tmp_path / side / "x.json") for side in ("a", "b")]
    assert run(["convert", *sources, "-o", str(tmp_path / "out")]) == 2
    assert "would both become" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_told(folder, tmp_path, capfd):
    (tmp_path / "file").touch()
    assert run(["convert", str(folder), "-o", str(tmp_path / "file" / "out")]) == 2
    assert "error: cannot write to" in capfd.readouterr().err
    if os.geteuid():
        assert (tmp_path / "file").stat().st_size == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is no folder to write to"),
        (["-o", "out", "--grids", "nestd"], "unknown grid encoding 'nestd'\nhint: did you mean nested?"),
        (["-o", "out", "--histogram", "bars"], "unknown histogram encoding 'bars'"),
        (["-o", "out", "--suffix", ".json.xz"], "unknown suffix '.json.xz'"),
        (["-o", "out", "--digits", "four"], "--digits 'four' is not a number of digits"),
        (["-o", "out", "--digits", "0"], "--digits '0' is not a number of digits"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_written(folder, tmp_path, monkeypatch, capfd, options, message):
    monkeypatch.chdir(tmp_path)
    assert run(["convert", str(folder), *options]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_has_nothing_to_convert(tmp_path, capfd):
    assert run(["convert", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "there is no checkpoint in" in capfd.readouterr().err
