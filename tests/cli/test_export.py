"""`ckaudit export`: what it writes, what it refuses to touch, and what it says."""

import csv
import json

import pytest

from ckaudit.cli.export import FORMATS
from ckaudit.cli.run import run
from ckaudit.importers import import_source
from ckaudit.reports.scalars import FORMATS as WRITTEN


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "nano"
    path.mkdir()
    lines = [
        {"step": 1, "train_loss_raw": 3.0},
        {"step": 2, "train_loss_raw": "NaN"},
        {"step": 2, "session": 1, "learning_rate": 0.5},
    ]
    (path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_format_on_the_command_line_has_a_writer():
    assert sorted(FORMATS) == sorted(WRITTEN)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "x.CSV"])
def test_the_end_of_the_name_tells_the_format(folder, tmp_path, capfd, name):
    assert run(["export", str(folder), "-o", str(tmp_path / name)]) == 0
    stdout, stderr = capfd.readouterr()
    assert (stdout, stderr) == ("", f"wrote {tmp_path / name}: 3 lines of 2 names of 2 sessions\n")
    assert import_source(tmp_path / name).source == "a table of ckaudit export"


def test_a_file_is_replaced_only_by_force(folder, tmp_path, capfd):
    path = tmp_path / "x.csv"
    path.write_text("mine")
    assert run(["export", str(folder), "-o", str(path)]) == 2
    assert "stands there already" in capfd.readouterr().err
    assert path.read_text() == "mine"
    assert run(["export", str(folder), "-o", str(path), "--force", "--quiet"]) == 0
    assert path.read_text().startswith("step,session,")
    assert capfd.readouterr().err == ""


def test_event_files_are_replaced_only_by_force_and_other_files_stay(folder, tmp_path, capfd):
    path = tmp_path / "tb"
    assert run(["export", str(folder), "--to", "tensorboard", "-o", str(path)]) == 0
    (path / "mine").write_text("mine")
    (path / "events.out.tfevents.7.old").write_text("old")
    assert run(["export", str(folder), "--to", "tensorboard", "-o", str(path)]) == 2
    assert "holds event files already" in capfd.readouterr().err
    assert run(["export", str(folder), "--to", "tensorboard", "-o", str(path), "--force"]) == 0
    assert sorted(each.name.rpartition(".")[2] for each in path.iterdir()) == ["mine", "session0", "session1"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "there is nothing to write to"),
        (["-o", "{tmp}/x.txt"], "tells no format"),
        (["-o", "{tmp}/x", "--to", "parket"], "did you mean parquet?"),
        (["-o", "{tmp}/none/x.csv"], "there is no folder"),
        (["-o", "{tmp}/nano", "--to", "csv"], "is a folder"),
        (["-o", "{tmp}/nano/scalars.jsonl", "--to", "tensorboard"], "is read by this command"),
        (["-o", "{tmp}/x.csv", "--map", "loss=x"], ""),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(folder, tmp_path, capfd, arguments, reason):
    before = sorted(tmp_path.rglob("*"))
    code = run(["export", str(folder), *(each.format(tmp=tmp_path) for each in arguments)])
    assert code == (0 if not reason else 2)
    assert reason in capfd.readouterr().err
    if reason:
        assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_is_not_there_leaves_nothing(tmp_path, capfd):
    assert run(["export", str(tmp_path / "none"), "-o", str(tmp_path / "x.csv")]) == 2
    assert "does not exist" in capfd.readouterr().err
    assert not (tmp_path / "x.csv").exists()


def test_a_folder_that_cannot_be_written_says_so(folder, tmp_path, capfd):
    (tmp_path / "file").write_text("")
    assert run(["export", str(folder), "--to", "tensorboard", "-o", str(tmp_path / "file" / "tb")]) == 2
    assert capfd.readouterr().err.startswith("error: ")


def test_what_a_history_leaves_out_is_said(folder, tmp_path, capfd):
    assert run(["export", str(folder), "--to", "wandb-csv", "-o", str(tmp_path / "x.csv")]) == 0
    assert "what a resume replaced was left out" in capfd.readouterr().err


def test_faults_and_checkpoints_are_said(folder, tmp_path, capfd):
    with (folder / "scalars.jsonl").open("a") as log:
        log.write("{broken}\n")
    (folder / "analysis_checkpoint_step_00000002.json").write_text('{"schema_version": "ck.analysis.v1", "step": 2}')
    assert run(["export", str(folder), "-o", str(tmp_path / "x.csv")]) == 0
    err = capfd.readouterr().err
    assert "1 faults in its files" in err
    assert "of 1 checkpoints only the scalars" in err


@pytest.mark.parametrize("to", ["csv", "wandb-csv"])
def test_no_cell_is_a_formula_and_every_one_is_read_back(tmp_path, to):
    names = ["=cmd|' /C calc'!A0", "+a", "-b", "@c", "\td", "\re", "'f", "''=g", "plain", "it's"]
    rows = [{"step": 1, "train_loss_raw": 2.5, "note": "=1+1", "hash": "-x", **dict.fromkeys(names, -1.5)}]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scalars.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["export", str(tmp_path / "run"), "--to", to, "-o", str(tmp_path / "out.csv"), "-q"]) == 0
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, *cells = csv.reader(stream)
    assert not [cell for cell in header if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert not [cell for row in cells for cell in row if cell.startswith(("=", "+", "@", "-x"))]
    read = import_source(tmp_path / "out.csv").rows
    assert [{name: value for name, value in row.items() if name not in ("time", "session")} for row in read] == rows
